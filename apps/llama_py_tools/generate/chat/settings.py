"""Settings of `/set`: options of the next responses, by their names."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import Field, fields, replace
from typing import TYPE_CHECKING, Any

from ggml_py.errors import ModelError
from llama_py.params import GenerateParams, SamplingParams
from llama_py.params.near import did_you_mean
from llama_py.params.option import Option, get_options
from llama_py.params.speculative import SpeculativeParams
from llama_py.params.texts import truth
from llama_py_tools.command.escapes import unescape
from llama_py_tools.command.options import converter

if TYPE_CHECKING:
    from llama_py_tools.generate.generation import GenerationRun

_OTHERS = {"special", *(f.name for f in fields(SpeculativeParams))}
Setting = tuple[Field[Any], Option]


def settings() -> dict[str, Setting]:
    """Return the options that can be set, by field name."""
    found = [*get_options(SamplingParams), *get_options(GenerateParams)]
    return {f.name: (f, o) for f, o in found if o.flags and f.name not in _OTHERS}


def names() -> list[str]:
    """Return every option's name on a command line, without its dashes."""
    return sorted(flag.lstrip("-") for _, o in settings().values() for flag in o.flags)


def find_setting(name: str) -> Setting:
    """Return the setting with this command-line or Python name; ModelError suggests similar
    names."""
    wanted = name.lstrip("-").replace("_", "-")
    for field, o in settings().values():
        flags = {flag.lstrip("-") for flag in o.flags}
        if wanted in flags | {field.name.replace("_", "-")}:
            return field, o
    hint = did_you_mean(wanted, names()) or "/set lists all"
    raise ModelError(f"unknown setting {name!r}; {hint}")


def parse_value(setting: Setting, text: str) -> Any:
    """Parse a value of an option; ModelError with the rule if it is wrong."""
    field, o = setting
    try:
        if isinstance(field.default, bool):
            return truth(text)
        return converter(o)(unescape(text) if o.many else text)
    except (ValueError, argparse.ArgumentTypeError) as e:
        raise ModelError(f"{field.name.replace('_', '-')}: {e}") from None


def values(run: GenerationRun) -> dict[str, Any]:
    """Return the current values by field name."""
    sampling = run.sampler.params
    return {
        name: getattr(sampling if hasattr(sampling, name) else run.params, name)
        for name in settings()
    }


def apply(run: GenerationRun, changes: Mapping[str, Any]) -> None:
    """Change settings of later responses; ModelError, without changes, for refused values.

    The sampler is replaced, so the caller must add the previous text to the new sampler.
    """
    from llama_py.sampler import Sampler

    chosen = {f.name for f, _ in get_options(SamplingParams)}
    sampling = {name: value for name, value in changes.items() if name in chosen}
    others = {name: value for name, value in changes.items() if name not in chosen}
    params, old = replace(run.params, **others), run.sampler
    if old.constraint is not None:
        old.constraint.reset()
    made = Sampler(
        replace(old.params, **sampling), old.n_vocab, run.model.tokenizer, old.constraint
    )
    run.sampler, run.params = made, replace(params, sampler=made)


def text(run: GenerationRun) -> str:
    """Return all settings, one per line; changed settings are marked."""
    lines = []
    now = values(run)
    for name, (field, o) in settings().items():
        usual = field.default if field.default_factory is not dict else {}
        flag = max(o.flags, key=len).lstrip("-")
        lines.append(f"{'*' if now[name] != usual else ' '} {flag:24} {show_value(now[name])}")
    return "\n".join(lines)


def show_value(value: Any) -> str:
    """Return a value on one line."""
    if isinstance(value, (tuple, list)):
        return " ".join(map(repr, value)) or "none"
    if isinstance(value, Mapping):
        return " ".join(f"{k!r}{v:+g}" for k, v in value.items()) or "none"
    return repr(value) if isinstance(value, str) else str(value)

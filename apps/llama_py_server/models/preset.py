"""Preset files of --models-preset: options of models, in sections (common/preset.cpp).

version = 1
[*]                       ; for all models
ctx-size = 4096
[small]                   ; for a model found elsewhere, or with a file in this section
model = small.gguf
LLAMA_ARG_N_PARALLEL = 2
"""

from __future__ import annotations

import configparser
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ggml_py.errors import ModelError
from llama_py.params.texts import truth
from llama_py_server.params import ListenParams
from llama_py_server.wire.errors import without_folders

if TYPE_CHECKING:
    from llama_py.params.option import Option
    from llama_py_tools.command.options import OptionParser

ALL = "*"
Options = dict[str, "PresetOption"]  # options by flags and variables
OWN = ("load-on-startup", "stop-timeout", "dedup-cache-models")
_BEGINNING = "\0"  # key of options before the first section


class PresetOption(NamedTuple):
    """An option, whether it is a switch, and whether it belongs to the server, not to a model."""

    declared: Option
    is_switch: bool
    is_of_server: bool


@dataclass(frozen=True)
class Preset:
    """flags  for the command line;  args  flags that clients may see
    at_start, dedup  options of presets only"""

    flags: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    at_start: bool = False
    dedup: bool = False


def read(path: str, parser: OptionParser) -> dict[str, Preset]:
    """Read presets by model name, each including `*`, which is also returned. OSError, or
    ModelError with file and section for an invalid line."""
    found = configparser.ConfigParser(
        delimiters=("=",),
        comment_prefixes=(";", "#"),
        inline_comment_prefixes=None,
        strict=False,
        interpolation=None,
        default_section="\1",
        empty_lines_in_values=False,
    )
    found.optionxform = str  # type: ignore[assignment]  # keys as they are
    try:
        found.read_string(f"[{_BEGINNING}]\n{Path(path).read_text('utf-8')}", path)
    except configparser.ParsingError as e:  # its text quotes the line, which may contain a secret
        raise ModelError(f"{path}: line {e.errors[0][0] - 1}: expected KEY = VALUE") from None
    except (configparser.Error, UnicodeDecodeError) as e:
        raise ModelError(f"{path}: {' '.join(str(e).split())}") from None
    options = {
        key: PresetOption(
            o, isinstance(f.default, bool) or bool(o.off), issubclass(kind, ListenParams)
        )
        for kind, f, o in parser.added
        for key in (*o.flags, *o.off, o.env)
    }
    lines = {name: [*found[name].items()] for name in found.sections() if name != _BEGINNING}
    for_all = lines.get(ALL, [])
    return {
        name: _preset(f"{path}: [{name}]", [*for_all, *own] if name != ALL else own, options)
        for name, own in lines.items()
    }


def _preset(where: str, lines: Iterable[tuple[str, str]], options: Options) -> Preset:
    own = dict.fromkeys(OWN, False)
    flags: list[str] = []
    args: list[str] = []
    for key, value in lines:
        flag = next((f for f in (f"--{key}", f"-{key}", key) if key and f in options), "")
        is_secret = not flag or options[flag].declared.secret  # it may be a misspelled secret
        try:
            if key in OWN:
                own[key] = key != "stop-timeout" and truth(value)
                continue
            words = _flags(flag, value, options)
        except ValueError as e:
            shown = "" if is_secret and key not in OWN else f" = {value}"
            raise ModelError(f"{where}: {key}{shown}: {e}") from None
        flags += words
        args += [] if is_secret else map(without_folders, words)
    return Preset(tuple(flags), tuple(args), own["load-on-startup"], own["dedup-cache-models"])


def _flags(flag: str, value: str, options: Options) -> list[str]:
    """Return a line as words of a command line."""
    if not flag:
        raise ValueError("unknown option; known options are in docs/options.md")
    o, is_switch, is_of_server = options[flag]
    if o.secret and is_of_server:
        raise ValueError("this option protects the server, not a model; set it on the command line")
    if not is_switch:
        return [o.flags[-1], value]
    if truth(value) == (flag not in o.off):
        return [o.flags[-1]]
    return [o.off[-1]] if o.off else []

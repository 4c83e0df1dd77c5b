"""Converters of checkpoints, one module for each architecture."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from ggml_py.errors import ModelError
from llama_py.checkpoint.converter import Converter
from llama_py.params.near import did_you_mean


@cache
def converters() -> dict[str, type[Converter]]:
    """Return the converters by name of the model's class in transformers."""
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    return collect(Converter, __name__)


@cache
def exporters() -> dict[str, type[Converter]]:
    """Return the converters that can export a model, by architecture."""
    kinds = {*converters().values()}
    return {kind.arch: kind for kind in kinds if kind.__dict__.get("exports")}


def converter(name: str) -> type[Converter]:
    """Return the converter of a class in transformers. Raises ModelError for an unknown name."""
    found = converters().get(name)
    if found is None:
        meant = did_you_mean(name, converters()) or "llama-py-gguf convert --list shows all"
        raise ModelError(f"models of the class {name[:100]!r} cannot be converted; {meant}")
    return found


def collect(base: type[Converter], package: str) -> dict[str, type[Converter]]:
    """Return the converters of a package's modules that have a base, by name of the class."""
    return {
        name: kind
        for kind in _subclasses(base)
        if kind.__module__.startswith(f"{package}.")
        for name in kind.__dict__.get("classes", ())
    }


def _subclasses(kind: type[Converter]) -> Iterator[type[Converter]]:
    for one in kind.__subclasses__():
        yield one
        yield from _subclasses(one)

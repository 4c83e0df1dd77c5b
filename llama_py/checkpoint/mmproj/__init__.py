"""Converters of encoders of images and sound, one module for each family."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from ggml_py.errors import ModelError
from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.media import MediaConverter
from llama_py.checkpoint.models import collect
from llama_py.params.near import did_you_mean


@cache
def media_converters() -> dict[str, type[Converter]]:
    """Return the converters by name of the model's or the vision encoder's class."""
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    return collect(MediaConverter, __name__)


def media_converter(name: str) -> type[Converter]:
    """Return the converter of the encoders of a class. Raises ModelError for an unknown name."""
    found = media_converters().get(name)
    if found is None:
        meant = did_you_mean(name, media_converters())
        meant = meant or "llama-py-gguf convert --list --mmproj shows all"
        raise ModelError(f"no encoders of the class {name[:100]!r} can be converted; {meant}")
    return found

"""Tokenizer models, one file each, found by `tokenizer.ggml.model`.

Each file defines a `TextModel` with its `names`. Files that start with `_` are shared parts.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from ggml_py.errors import TokenizerError
from llama_py.tokenizer.models._base import TextModel
from llama_py.tokenizer.vocab import PREFIX


def text_model(meta: Mapping[str, Any]) -> TextModel:
    """Return the model that the metadata names; TokenizerError lists the known names."""
    name = str(meta.get(PREFIX + "model"))
    for names, kind in _models():
        if name in names:
            return kind(meta)
    known = ", ".join(sorted(known_models()))
    raise TokenizerError(f"unknown {PREFIX}model {name!r}; known: {known}")


def known_models() -> dict[str, type[TextModel]]:
    """Return the classes by their values of `tokenizer.ggml.model`."""
    return {name: kind for names, kind in _models() for name in names}


def _models() -> Iterator[tuple[Sequence[str], type[TextModel]]]:
    """Yield names and class of each model; a file is imported when the iteration reaches it."""
    for file in pkgutil.iter_modules(__path__):
        if file.name.startswith("_"):
            continue
        module = import_module(f"{__name__}.{file.name}")
        for value in vars(module).values():
            if isinstance(value, type) and value.__module__ == module.__name__:
                yield getattr(value, "names", ()), value

"""Tokenizer models, one file each, found by `tokenizer.ggml.model`.

Each file defines a `TextModel` with its `names`. Files that start with `_` are shared parts.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ggml_py.errors import TokenizerError
from llama_py.tokenizer.models._base import TextModel
from llama_py.tokenizer.vocab import PREFIX


def text_model(meta: Mapping[str, Any]) -> TextModel:
    """Return the model that the metadata names; TokenizerError lists the known names."""
    name, known = str(meta.get(PREFIX + "model")), known_models()
    if name not in known:
        raise TokenizerError(f"unknown {PREFIX}model {name!r}; known: {', '.join(sorted(known))}")
    return known[name](meta)


def known_models() -> dict[str, type[TextModel]]:
    """Return the classes by their values of `tokenizer.ggml.model`."""
    found: dict[str, type[TextModel]] = {}
    for file in pkgutil.iter_modules(__path__):
        if file.name.startswith("_"):
            continue
        module = import_module(f"{__name__}.{file.name}")
        for value in vars(module).values():
            if isinstance(value, type) and value.__module__ == module.__name__:
                found |= dict.fromkeys(getattr(value, "names", ()), value)
    return found

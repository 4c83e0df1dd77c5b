"""More tiny models of transformers for transformers_side.py, one module for each family: `MODELS`,
`CLASSES` of models without logits, `CONVERTER`, further keys of config.json for llama.cpp's
converter, `FILES`, the content of further JSON files, and `NAMES`, parts of tensors' names."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Any


def join_tables(name: str) -> dict[str, Any]:
    """Return the joined dictionaries of this name of all modules."""
    found = dict[str, Any]()
    for module in iter_modules(__path__):
        found |= getattr(import_module(f"{__name__}.{module.name}"), name, {})
    return found

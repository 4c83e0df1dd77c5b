"""Special tokens that strip adjacent spaces. Files do not list them, so llama.cpp knows them by
names in the files (llama-vocab.cpp:impl::load).

One file per architecture, with its name, defines a `Strips`. Files that start with `_` are shared
parts.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from llama_py.tokenizer.stripped._strips import Strips
from llama_py.tokenizer.vocab import TokenType, Vocab

SPECIAL_TYPES = (TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNKNOWN)


def strip_ids(
    meta: Mapping[str, Any], vocab: Vocab, types: Sequence[int]
) -> tuple[set[int], set[int]]:
    """Return the ids that strip to the left and to the right."""
    found = next((strips for strips in all_strips() if strips.holds(meta)), None)
    if found is None:
        return set(), set()
    right = {i for i, type_ in enumerate(types) if found.all_right and type_ in SPECIAL_TYPES}
    right |= set(vocab.find_ids(found.right))
    return set(vocab.find_ids(found.left)), right - set(vocab.find_ids(found.spared))


@cache
def all_strips() -> list[Strips]:
    """Return the declarations of all files here, in the order of their checks."""
    modules = [m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")]
    found = (vars(import_module(f"{__name__}.{name}")).values() for name in modules)
    every = [value for values in found for value in values if isinstance(value, Strips)]
    return sorted(every, key=lambda strips: strips.order)

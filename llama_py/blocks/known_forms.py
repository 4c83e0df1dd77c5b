"""All variants that blocks can be built in, and the check of a user's choice of variants."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from ggml_py.errors import ContextError
from llama_py import blocks
from llama_py.hparams.variants import KNOWN, Variant


@cache
def forms() -> Mapping[str, Variant]:
    """Return the variants of every block that has some. Imports all blocks."""
    for module in pkgutil.walk_packages(blocks.__path__, f"{blocks.__name__}."):
        importlib.import_module(module.name)
    return KNOWN


def check(chosen: Mapping[str, str]) -> None:
    """Raise ContextError for an unknown block or variant; "auto" is always valid."""
    for kind, name in chosen.items():
        known = forms().get(kind)
        if known is None:
            names = ", ".join(sorted(forms()))
            raise ContextError(f"forms: unknown block {kind!r}; known: {names}")
        if name not in ("auto", *known.names):
            raise ContextError(
                f"{kind} must be auto or one of {', '.join(known.names)}, got {name!r}"
            )

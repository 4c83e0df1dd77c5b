"""The forms that blocks can be built in, over all blocks; and what a user chooses of them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from ggml_py.errors import ContextError
from llama_py import blocks
from llama_py.hparams.forms import KNOWN, Form


@cache
def forms() -> Mapping[str, Form]:
    """Every kind there is; imports the blocks."""
    for module in pkgutil.walk_packages(blocks.__path__, f"{blocks.__name__}."):
        importlib.import_module(module.name)
    return KNOWN


def check(chosen: Mapping[str, str]) -> None:
    """ContextError for a kind or a form that does not exist; "auto" leaves the choice open."""
    for kind, name in chosen.items():
        known = forms().get(kind)
        if known is None:
            names = ", ".join(sorted(forms()))
            raise ContextError(f"forms: {kind!r} is no block; known are {names}")
        if name not in ("auto", *known.names):
            raise ContextError(
                f"{kind} is {name!r}; it must be auto or one of {', '.join(known.names)}"
            )

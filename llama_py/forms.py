"""Blocks that can be built in several ways, with the same result: a registry of their forms.

A block declares its kind once, and asks its graph which form to build:

    DELTA_NET = Form("delta_net", ("fused", "chunked"), "how gated delta nets are computed")
    if g.form(DELTA_NET) == "fused": ...

A context takes the choice of a user, `forms={"delta_net": "chunked"}`; a command `--form`. What is
left open is the first form, where every device can run its nodes, else the second.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from ggml_py.errors import ContextError

SLOTS = "slots"  # the form of any kind whose states are rows of slots (llama_py.memory.slots)

_REGISTRY: dict[str, Form] = {}


@dataclass(frozen=True)
class Form:
    """A kind of block.

    names     its forms: the first is one op, the second does without it
    meaning   a line of help
    go_back   those that can keep the states of earlier tokens; the first always can
    """

    kind: str
    names: tuple[str, ...]
    meaning: str
    go_back: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _REGISTRY[self.kind] = self


@cache
def forms() -> Mapping[str, Form]:
    """Every kind there is; imports the blocks."""
    package = importlib.import_module("llama_py.blocks")
    for module in pkgutil.walk_packages(package.__path__, "llama_py.blocks."):
        importlib.import_module(module.name)
    return _REGISTRY


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

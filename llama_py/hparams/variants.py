"""Registry of blocks that can be built in several variants with the same result.

A block declares its kind once, and asks its graph which form to build:

    DELTA_NET = Variant("delta_net", ("fused", "chunked"), "how gated delta nets are computed")
    if g.form(DELTA_NET) == "fused": ...

A user chooses with `forms={"delta_net": "chunked"}` or the flag `--form`. The default is the first
form if every device can run its nodes, else the second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ggml_py._moved import former_names

SLOTS = "slots"  # form of any kind that stores states in slots (llama_py.memory.slots)

KNOWN: dict[str, Variant] = {}


@dataclass(frozen=True)
class Variant:
    """A kind of block.

    names     its forms: the first is one op, the second uses other ops
    meaning   a line of help
    go_back   forms that can store the states of earlier tokens; the first always can
    """

    kind: str
    names: tuple[str, ...]
    meaning: str
    go_back: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        KNOWN[self.kind] = self


if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, Form="Variant")

"""Registry of blocks that can be built in several variants with the same result.

A block declares its kind once, and asks its graph which form to build:

    DELTA_NET = Form("delta_net", ("fused", "chunked"), "how gated delta nets are computed")
    if g.form(DELTA_NET) == "fused": ...

A context takes the choice of a user, `forms={"delta_net": "chunked"}`; a command `--form`. What is
left open is the first form, where every device can run its nodes, else the second.
"""

from __future__ import annotations

from dataclasses import dataclass

SLOTS = "slots"  # the form of any kind whose states are rows of slots (llama_py.memory.slots)

KNOWN: dict[str, Form] = {}


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
        KNOWN[self.kind] = self

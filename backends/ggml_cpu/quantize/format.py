"""Quantizers of types, registered by the files of types/."""

from __future__ import annotations

from dataclasses import dataclass

from ggml_cpu.kernel import Function
from ggml_py.types import BY_NAME, GGMLType


@dataclass(frozen=True)
class Quantizer:
    """Functions that make blocks of a type, 16 at a time; both take an address (lanes.py).

    plain     without importance of values; None where ggml has no such way
    weighted  with it, in the tile W; None where it makes no difference
    by_row    weighted also wants the mean square of the row
    codebook  of points that are searched: its name, and how many distances count as near
    """

    type: GGMLType
    plain: Function | None
    weighted: Function | None = None
    by_row: bool = False
    codebook: tuple[str, int] | None = None


REGISTERED: dict[str, Quantizer] = {}


def register(
    name: str,
    plain: Function | None,
    weighted: Function | None = None,
    *,
    by_row: bool = False,
    codebook: tuple[str, int] | None = None,
) -> None:
    REGISTERED[name] = Quantizer(BY_NAME[name], plain, weighted, by_row, codebook)

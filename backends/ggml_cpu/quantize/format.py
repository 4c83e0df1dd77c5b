"""Registry of quantizers; the modules of types/ register them."""

from __future__ import annotations

from dataclasses import dataclass

from ggml_cpu.kernel import Function
from ggml_py.types import BY_NAME, GGMLType


@dataclass(frozen=True)
class Quantizer:
    """Functions that quantize 16 blocks of a type; their argument is a memory address (lanes.py).

    plain     quantize without importance; None if ggml requires importance
    weighted  quantize with importance, in the tile W; None if importance is not used
    by_row    True if `weighted` needs the mean square of the row
    codebook  name of the grid, and number of distances that count as near
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

"""Registry of quantizers; the modules of types/ register them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ggml_cpu.kernel import Function
from ggml_py.types import BY_NAME, GGMLType

Tables = Callable[[], tuple[int, ...]]
FOUND = 16 * 64  # bytes of the results of `RowSteps.search` for a block: 16 vectors


def no_tables() -> tuple[int, ...]:
    return ()


@dataclass(frozen=True)
class Quantizer:
    """Functions that quantize 16 blocks of a type; their argument is a memory address (lanes.py).

    plain     quantize without importance; None if ggml requires importance
    weighted  quantize with importance, in the tile W; None if importance is not used
    by_row    True if `weighted` needs the mean square of the row
    tables    returns the addresses of its tables, up to three
    rows      how rows with one scale are quantized; then `plain` and `weighted` set the weights W
              of the values X of 16 blocks, one of each row
    """

    type: GGMLType
    plain: Function | None
    weighted: Function | None = None
    by_row: bool = False
    tables: Tables = no_tables
    rows: RowSteps | None = None

    def row_size(self, n: int) -> int:
        """Return the bytes of a row in a file, which may begin with its scale."""
        head = self.rows.head if self.rows else 0
        return head + n // self.type.block_size * (self.type.type_size - head)


@dataclass(frozen=True)
class RowSteps:
    """Functions (`@fn`) that quantize 16 rows, one per lane, in two passes over their blocks.

    `found` is the address of a block's results, `found_size` bytes. The tile SIGMA has the largest
    magnitudes of the rows; `put` may add to the tile SUMS, which is 0 at first.

    search  search(m, found, largest): find scales of the groups of a block; return the scale of
            largest magnitude of all searched groups
    start   start(m, blocks, largest): the scale of a row; blocks: their number
    put     put(m, found, d): store a block with the scale d
    finish  finish(m, d): the scale that is stored, in `head` bytes
    """

    search: Function
    start: Function
    put: Function
    finish: Function
    head: int = 4
    found_size: int = FOUND


REGISTERED: dict[str, Quantizer] = {}


def register(
    name: str,
    plain: Function | None,
    weighted: Function | None = None,
    *,
    by_row: bool = False,
    tables: Tables = no_tables,
    rows: RowSteps | None = None,
) -> None:
    REGISTERED[name] = Quantizer(BY_NAME[name], plain, weighted, by_row, tables, rows)

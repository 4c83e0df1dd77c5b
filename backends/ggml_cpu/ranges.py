"""Memory ranges as (first address, end), and their division into pieces at all edges."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from ggml_cpu.step import address
from ggml_py.tensor import Tensor

Range = tuple[int, int]


def tensor_range(t: Tensor) -> Range:
    """Return the range from the tensor's first byte to its last, including gaps."""
    start = address(t)
    return start, start + stored_bytes(t)


def stored_bytes(t: Tensor) -> int:
    """Return the bytes of a tensor; a repacked weight fills a separate buffer (repack.py)."""
    return t.buffer.size if t.layout and t.buffer is not None else t.nbytes


class RangePieces:
    """Memory divided at all edges of some ranges, so that each range is a sequence of pieces."""

    def __init__(self, ranges: Iterable[Range]) -> None:
        self.edges = sorted({edge for r in ranges for edge in r})
        self._found: dict[Range, slice] = {}

    def __len__(self) -> int:
        return len(self.edges)

    def find_slice(self, r: Range) -> slice:
        """Return the slice of pieces that a range touches; empty if it overlaps no given range."""
        found = self._found.get(r)
        if found is None:
            start, end = r
            last = bisect_left(self.edges, end) if start < end else 0
            found = slice(max(0, bisect_right(self.edges, start) - 1), last)
            self._found[r] = found
        return found

"""Arena for blocks of bytes with lifetimes: their offsets, and the total size needed."""

from __future__ import annotations

from bisect import bisect, insort
from dataclasses import dataclass, field

import numpy as np

FOREVER = 1 << 62


@dataclass(slots=True)
class Arena:
    """One growing block of bytes: best fit over the free ranges, which are merged when they touch.
    The last range is the last choice, because it can grow (ggml-alloc.c:ggml_dyn_tallocr_alloc).
    """

    alignment: int = 64
    size: int = 0
    free: list[tuple[int, int]] = field(default_factory=list)  # (offset, size), by offset

    def take(self, nbytes: int) -> int:
        need = -(-max(nbytes, 1) // self.alignment) * self.alignment
        top = bool(self.free) and sum(self.free[-1]) == self.size
        best = min(
            (i for i, f in enumerate(self.free[: len(self.free) - top]) if f[1] >= need),
            key=lambda i: self.free[i][1],
            default=-1,
        )
        if best >= 0:
            offset, size = self.free.pop(best)
            if size > need:
                insort(self.free, (offset + need, size - need))
            return offset
        if not top:
            self.size += need
            return self.size - need
        offset, size = self.free.pop()
        if size > need:
            self.free.append((offset + need, size - need))
        self.size = max(self.size, offset + need)
        return offset

    def give(self, offset: int, nbytes: int) -> None:
        size = -(-max(nbytes, 1) // self.alignment) * self.alignment
        i = bisect(self.free, (offset, size))
        self.free.insert(i, (offset, size))
        if i + 1 < len(self.free) and offset + size == self.free[i + 1][0]:
            size += self.free.pop(i + 1)[1]
            self.free[i] = (offset, size)
        if i > 0 and sum(self.free[i - 1]) == offset:
            before, before_size = self.free[i - 1]
            self.free[i - 1 : i + 1] = [(before, before_size + size)]


@dataclass(slots=True)
class PackedArena:
    """Offsets computed after all blocks are known, largest first: slower than an Arena, but with
    fewer gaps. `take` returns the number of a block; `pack` returns all offsets.
    """

    alignment: int = 64
    size: int = 0
    blocks: list[tuple[int, int, int]] = field(default_factory=list)  # (size, since, until)
    _now: int = 0

    def take(self, nbytes: int) -> int:
        need = -(-max(nbytes, 1) // self.alignment) * self.alignment
        self.blocks.append((need, self._tick(), FOREVER))
        return len(self.blocks) - 1

    def give(self, block: int, nbytes: int) -> None:
        size, since, _ = self.blocks[block]
        self.blocks[block] = (size, since, self._tick())

    def _tick(self) -> int:
        self._now += 1
        return self._now

    def pack(self) -> list[int]:
        """Place each block in the smallest gap of its lifetime, or else on top; return the
        offsets."""
        offsets = [0] * len(self.blocks)
        lows, highs, since, until = np.zeros((4, len(self.blocks)), np.int64)
        order = sorted(range(len(self.blocks)), key=lambda i: -self.blocks[i][0])
        for n, i in enumerate(order):
            size, first, last = self.blocks[i]
            beside = np.flatnonzero((since[:n] < last) & (until[:n] > first))
            beside = beside[np.argsort(lows[beside], kind="stable")]
            starts = np.append(0, np.maximum.accumulate(highs[beside]))
            gaps = np.append(lows[beside], FOREVER) - starts
            fitting = np.where(gaps >= size, gaps, FOREVER + 1)
            offsets[i] = int(starts[fitting.argmin()])
            lows[n], highs[n], since[n], until[n] = offsets[i], offsets[i] + size, first, last
        self.size = int(highs.max(initial=0))
        return offsets

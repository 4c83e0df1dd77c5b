"""Arena for blocks of bytes with lifetimes: their offsets, and the total size needed."""

from __future__ import annotations

from bisect import bisect, insort
from dataclasses import dataclass, field


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
        ranges = self.free[:-1] if top else self.free
        fitting = [(size, i) for i, (_, size) in enumerate(ranges) if size >= need]
        if fitting:
            offset, size = self.free.pop(min(fitting)[1])
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

    blocks  size and number of each block, and numbers of the blocks in use at the same time
    """

    alignment: int = 64
    size: int = 0
    blocks: list[tuple[int, int, list[int]]] = field(default_factory=list)
    _used: set[int] = field(default_factory=set)

    def take(self, nbytes: int) -> int:
        need, block = -(-max(nbytes, 1) // self.alignment) * self.alignment, len(self.blocks)
        for other in self._used:
            self.blocks[other][2].append(block)
        self.blocks.append((need, block, [*self._used]))
        self._used.add(block)
        return block

    def give(self, block: int, nbytes: int) -> None:
        self._used.remove(block)

    def pack(self) -> list[int]:
        """Place each block in the smallest gap of its lifetime, or else on top; return the
        offsets."""
        ranges: dict[int, tuple[int, int]] = {}
        for size, i, others in sorted(self.blocks, key=lambda block: -block[0]):
            offset, best, top = -1, 1 << 62, 0
            for low, high in sorted(ranges[k] for k in others if k in ranges):
                if size <= low - top < best:
                    offset, best = top, low - top
                top = max(top, high)
            offset = top if offset < 0 else offset
            ranges[i] = offset, offset + size
            self.size = max(self.size, offset + size)
        return [ranges[i][0] for i in range(len(self.blocks))]

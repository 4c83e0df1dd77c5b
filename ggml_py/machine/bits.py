"""Bit fields of blocks: read values from bytes, or rearrange fields, by named axes.

A field names the axes of its bits in memory, slowest first, and then the wanted order:

    field("q8 j16 h2 b4 > q h j b").read(raw)   # low nibbles of 16 bytes, then high nibbles

A last axis b has the bits of one value, lowest first, and x bits that are moved together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
Values = npt.NDArray[Any]
_WORDS = {8: "<u1", 16: "<u2", 32: "<u4"}


def split(raw: U8, bits: int) -> Values:
    """Return bytes [n, k] as numbers of 1, 2, 4, 8, 16 or 32 bits, lowest bits first."""
    raw = np.ascontiguousarray(raw)
    if bits >= 8:
        return raw.view(_WORDS[bits])
    parts = raw[..., None] >> np.arange(0, 8, bits, dtype=np.uint8)
    return (parts & np.uint8((1 << bits) - 1)).reshape(len(raw), -1)


def join(parts: Values, bits: int) -> U8:
    """Return numbers [n, k] of `bits` bits as bytes, the inverse of `split`."""
    parts = np.ascontiguousarray(parts)
    if bits >= 8:
        return parts.astype(_WORDS[bits]).view(np.uint8)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    together = parts.astype(np.uint8).reshape(len(parts), -1, 8 // bits) << shifts
    found: U8 = np.bitwise_or.reduce(together, axis=-1)
    return found


@dataclass(frozen=True)
class BitField:
    """A field of bits.

    sizes    sizes of its axes in memory, without the bits that remain together
    order    transposes these axes to the wanted order
    unit     number of bits that remain together
    """

    sizes: tuple[int, ...]
    order: tuple[int, ...]
    unit: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.sizes) * self.unit // 8

    def read(self, raw: U8) -> Values:
        """Return the values of bytes [n, nbytes]: [n, values] in the wanted order."""
        axes = (0, *(i + 1 for i in self.order))
        parts = split(raw, self.unit).reshape(len(raw), *self.sizes)
        return parts.transpose(axes).reshape(len(raw), -1)

    def write(self, values: Values) -> U8:
        """Return the bytes of values [n, values], the inverse of `read`."""
        axes = (0, *(self.order.index(i) + 1 for i in range(len(self.order))))
        parts = values.reshape(len(values), *(self.sizes[i] for i in self.order))
        return join(parts.transpose(axes).reshape(len(values), -1), self.unit)

    def rearrange(self, raw: U8) -> U8:
        """Return the bytes [n, nbytes] with the field's bits in the wanted order."""
        return join(self.read(raw), self.unit)


@cache
def field(text: str) -> BitField:
    """Return the field of a specification such as "q8 j16 h2 b4 > q h j b".

    Without ">" it is the order in memory.
    """
    memory, _, wanted = text.partition(">")
    sizes = {axis[0]: int(axis[1:]) for axis in memory.split()}
    names, order = list(sizes), wanted.split() or list(sizes)
    if sorted(names) != sorted(order):
        raise ValueError(f"axes {names} must equal the axes of the order, got {order}")
    unit = 1
    if names[-1] == order[-1] and order[-1] in "bx":
        unit, names, order = sizes[names[-1]], names[:-1], order[:-1]
    return BitField(tuple(sizes[name] for name in names), tuple(map(names.index, order)), unit)

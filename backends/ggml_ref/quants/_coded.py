"""Types of ik_llama.cpp: points of a codebook times one scale per group, x = d·factor[code]·point.

A point has one value (levels), two, four or eight. A type is a list of its bit fields (see
ggml_py/machine/bits.py), its factors and its points. Fields, in the order of the block, after d:

    code    number of a group's factor
    shift   bit above the index, one per group: chooses the second half of the points
    index   number of a point
    minus   sign of a value

"index+4" are the bits of the index from bit 4 on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ggml_py.machine.bits import U8, Values, field
from ggml_ref.quants import _blocks as block
from ggml_ref.quants._blocks import F32

PIECE = 1 << 9  # blocks quantized at a time
CANDIDATES = 1 << 10  # points of a large codebook that are tried for one place


def levels(values: tuple[int, ...], shift: int) -> F32:
    """Return points of one value, [2n, 1]: the values, and the values plus a shift."""
    first = np.array(values, np.float32)
    return np.concatenate([first, first + np.float32(shift)])[:, None]


@dataclass(frozen=True)
class PointFormat:
    """Fields, factors and points of a type.

    d         dtype of the scale at the start of a block
    fields    name to specification, in the order of the block
    factors   factor of each code, [codes]
    per       values that share a code
    points    returns the codebook, [points, values]
    in_code   True if bit 0 of the code is also the shift
    size      values of a block
    """

    d: str
    fields: tuple[tuple[str, str], ...]
    factors: F32
    per: int
    points: Callable[[], F32]
    in_code: bool = False
    size: int = 256

    @cached_property
    def n_bytes(self) -> int:
        """Bytes of a block."""
        return np.dtype(self.d).itemsize + sum(field(spec).nbytes for _, spec in self.fields)

    @cached_property
    def index_bits(self) -> int:
        """Number of bits of an index without the shift."""
        shifts = self.in_code or any(name == "shift" for name, _ in self.fields)
        return (len(self.points()) // (2 if shifts else 1) - 1).bit_length()

    def read(self, blocks: U8) -> tuple[F32, dict[str, Values]]:
        """Return d [n, 1] and the numbers of each field, [n, ...]."""
        at = np.dtype(self.d).itemsize
        d = block.float32(np.ascontiguousarray(blocks[:, :at]).view(self.d))
        found: dict[str, Values] = {}
        for name, spec in self.fields:
            f = field(spec)
            name, _, low = name.partition("+")
            part = f.read(blocks[:, at : at + f.nbytes]).astype(np.int32) << int(low or 0)
            found[name] = found[name] | part if name in found else part
            at += f.nbytes
        return d, found

    def write(self, d: F32, numbers: dict[str, Values]) -> bytes:
        """Return blocks, the inverse of `read`."""
        parts = [d.astype(self.d).view(np.uint8).reshape(len(d), -1)]
        for name, spec in self.fields:
            f = field(spec)
            name, _, low = name.partition("+")
            parts.append(f.write(numbers[name] >> int(low or 0) & ((1 << f.unit) - 1)))
        return np.concatenate(parts, axis=1).tobytes()

    def dequantize(self, blocks: U8) -> F32:
        return self.values(*self.read(blocks))

    def values(self, d: F32, numbers: dict[str, Values]) -> F32:
        """Return the values [n, size] of scales and numbers, see `read`."""
        n, groups, points = len(d), self.size // self.per, self.points()
        code = numbers.get("code", np.zeros((n, groups), np.int32))
        shift = code & 1 if self.in_code else numbers.get("shift", np.zeros_like(code))
        index = numbers["index"].reshape(n, groups, -1) | shift[..., None] << self.index_bits
        x: F32 = (d * self.factors[code])[..., None, None] * points[index]
        x = x.reshape(n, -1)
        return np.where(numbers["minus"], -x, x) if "minus" in numbers else x

    def approximate(self, x: npt.NDArray[np.floating]) -> bytes:
        """Quantize with the first half of the points; not ik_llama.cpp's bytes."""
        return encode_pieces(self._encode, x, self.size)

    def _encode(self, x: F32) -> bytes:
        d, numbers = self.numbers(x)
        return self.write(d, numbers)

    def numbers(self, x: F32) -> tuple[F32, dict[str, Values]]:
        """Return d and the fields of values [n, size]."""
        numbers: dict[str, Values] = {}
        if any(name == "minus" for name, _ in self.fields):
            numbers["minus"] = (x < 0).astype(np.int32)
            x = np.abs(x)
        points = self.points()[: 1 << self.index_bits]
        groups = x.reshape(len(x), -1, self.per)
        largest = np.abs(groups).max(axis=-1) / _typical(points)
        best = self.factors.max()
        d = block.float32((largest.max(axis=1, keepdims=True) / best).astype(self.d))
        code = _nearest_factor(self.factors, largest * block.inverse(d), self.in_code)
        scale = d * self.factors[code]
        wanted = groups * block.inverse(scale)[..., None]
        index = _nearest_point(points, wanted.reshape(len(x), -1, points.shape[1]))
        numbers |= {"code": code, "shift": np.zeros_like(code), "index": index}
        return d, numbers


def encode_pieces(
    encode: Callable[[F32], bytes], x: npt.NDArray[np.floating], size: int = 256
) -> bytes:
    """Return encode(blocks) of PIECE blocks at a time, to limit memory."""
    x = block.groups(x, size)
    return b"".join(encode(x[i : i + PIECE]) for i in range(0, len(x), PIECE))


def _typical(points: F32) -> np.float32:
    """Return the magnitude of points that the largest value of a group becomes."""
    if points.shape[1] <= 2:
        return np.float32(min(-points.min(), points.max()) if points.min() < 0 else points.max())
    return np.float32(0.75 * np.abs(points).max())


def _nearest_factor(factors: F32, wanted: F32, even: bool) -> Values:
    step = 2 if even else 1
    found: Values = np.abs(wanted[..., None] - factors[::step]).argmin(axis=-1) * step
    return found


def _nearest_point(points: F32, x: F32) -> Values:
    """Return indices [n, places] of points near x [n, places, length]; of many points, each place
    tries others."""
    step = max(1, len(points) // CANDIDATES)
    index = np.empty(x.shape[:2], np.int64)
    for i in range(min(step, x.shape[1])):
        some = points[i::step]
        at = x[:, i::step]
        distance = (some**2).sum(axis=1) - 2 * (at @ some.T)
        index[:, i::step] = distance.argmin(axis=-1) * step + i
    return index

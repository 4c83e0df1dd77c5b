"""Tensors of GGUF files as lazy arrays, in the types of a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ggml_py.types import BF16, F16, F32, GGMLType
from llama_py.checkpoint.arrays import PART, Array, LazyArray
from llama_py.checkpoint.floats import from_bits, to_bytes
from llama_py.gguf.file import TensorInfo
from llama_py.gguf.values import row_reader

# Types of checkpoints: their names in safetensors, and elements in memory. BF16 is in integers.
STORED: Mapping[GGMLType, tuple[str, np.dtype[Any]]] = {
    F32: ("F32", np.dtype("<f4")),
    F16: ("F16", np.dtype("<f2")),
    BF16: ("BF16", np.dtype("<u2")),
}


class SourceArray(LazyArray):
    """Successive elements of a file's tensor, as F32, F16 or BF16.

    Rows and other shapes remain parts of the file; elements of the same type are not copied.
    """

    def __init__(self, t: TensorInfo, type: GGMLType, shape: Sequence[int], start: int = 0) -> None:
        """start: the first element, a multiple of the tensor's row length"""
        name, dtype = STORED[type]
        super().__init__(shape, dtype, self._read, name, self._read_parts)
        self.tensor, self.type, self.start = t, type, start

    @classmethod
    def from_tensor(cls, t: TensorInfo, type: GGMLType, least: int = 1) -> SourceArray:
        """Return a whole tensor, with `least` dimensions or more."""
        return cls(t, type, t.ne[: max(len(t.dims), least)][::-1])

    def _rows(self) -> Iterator[tuple[int, Array]]:
        """Yield parts of whole rows: the first element, and their bytes."""
        n = self.tensor.ne[0]
        size = self.tensor.type.row_size(n)
        first, last = self.start // n, -(-(self.start + math.prod(self.shape)) // n)
        rows, step = self.tensor.data.reshape(-1, size), max(1, PART // n)
        for i in range(first, last, step):
            yield i * n, rows[i : min(i + step, last)]

    def _read(self) -> Array:
        dtype = self.dtype
        if self.tensor.type == self.type:
            size = dtype.itemsize
            data = self.tensor.data[self.start * size :][: math.prod(self.shape) * size]
            return data.view(dtype).reshape(self.shape)
        made, at = np.empty(math.prod(self.shape), dtype), 0
        for part in self._read_parts():
            made[at : at + part.size] = part.reshape(-1)
            at += part.size
        return made.reshape(self.shape)

    def _read_parts(self) -> Iterator[Array]:
        """Yield the elements in order."""
        n, read = self.tensor.ne[0], row_reader(self.tensor.type)
        end = self.start + math.prod(self.shape)
        for at, rows in self._rows():
            if self.tensor.type == self.type:
                values = rows.view(self.dtype)
            else:
                values = to_bytes(self.type, read(rows, n)).view(self.dtype)
            yield values.reshape(-1)[: end - at]

    def reshape(self, *shape: int) -> LazyArray:
        found = super().reshape(*shape).shape
        return SourceArray(self.tensor, self.type, found, self.start)

    def rows(self, start: int, end: int | None = None, axis: int = 0) -> LazyArray:
        first, last, _ = slice(start, end).indices(self.shape[axis])
        each = math.prod(self.shape[1:])
        if axis % self.ndim or self.ndim < 2 or each % self.tensor.ne[0]:
            return super().rows(start, end, axis)
        shape = (max(last - first, 0), *self.shape[1:])
        return SourceArray(self.tensor, self.type, shape, self.start + first * each)

    def map(self, function: Callable[[Array], Array]) -> LazyArray:
        """Apply a function of float32 values."""

        def make() -> Array:
            values = from_bits(self.stored, self.read()).astype(np.float32)
            return function(values).astype(np.float32, copy=False)

        return LazyArray(self.shape, np.float32, make)


def narrow(array: LazyArray, type: GGMLType) -> LazyArray:
    """Return an array of F32 in another type if that changes no value; else the array.

    Changed values remain F32, since a conversion calculates F16 in F16.
    """
    is_changed = not isinstance(array, SourceArray)
    if array.stored != "F32" or type == F32 or (type == F16 and is_changed):
        return array
    name, dtype = STORED[type]

    def make() -> Array:
        made: Array = to_bytes(type, array.read()).view(dtype).reshape(array.shape)
        return made

    values = np.ascontiguousarray(array.read(), np.float32)
    back = from_bits(name, make()).astype(np.float32)
    is_equal = np.array_equal(back.view(np.uint32), values.view(np.uint32))
    return LazyArray(array.shape, dtype, make, name) if is_equal else array

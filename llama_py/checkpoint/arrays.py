"""Arrays that are computed when they are written: a conversion needs the memory of the largest
tensor, not of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ggml_py.errors import ModelError
from ggml_py.types import GGMLType
from llama_py.checkpoint.floats import from_bits, to_bytes
from llama_py.checkpoint.safetensors import StoredTensor

Array = npt.NDArray[Any]
PART = 1 << 22  # elements of a part
UNPACKED = "convert the original, unquantized checkpoint"  # the remedy for blocks


class LazyArray:
    """A tensor of a checkpoint, or a function of several.

    shape   in the order of torch: the last dimension is contiguous
    dtype   float32, or float16 if it is stored so: llama.cpp's converter calculates in the
            stored type, and in float32 for all others
    stored  name of the type in the file
    packed  None, or the type of blocks: then the elements are their bytes, and a row has whole
            blocks
    """

    def __init__(
        self,
        shape: Sequence[int],
        dtype: npt.DTypeLike,
        make: Callable[[], Array],
        stored: str = "F32",
        make_parts: Callable[[], Iterator[Array]] | None = None,
        packed: GGMLType | None = None,
    ) -> None:
        """make        computes all values
        make_parts  computes them in parts, if that takes less memory"""
        self.shape, self.dtype, self._make = tuple(shape), np.dtype(dtype), make
        self.stored, self._make_parts, self.packed = stored, make_parts, packed
        self._source: StoredTensor | None = None

    @classmethod
    def from_stored(cls, t: StoredTensor) -> LazyArray:
        """Return a tensor of a file, as float32 unless it is float16."""

        def read() -> Array:
            values = from_bits(t.dtype, t.array())
            if values.base is not None:  # a view of the mapped file
                values = values.copy()
            t.let_go()
            return values

        def read_parts() -> Iterator[Array]:
            rows = t.array().reshape(-1, t.shape[-1] if t.shape else 1)
            step = max(1, PART // max(rows.shape[1], 1))
            for i in range(0, len(rows), step):
                yield from_bits(t.dtype, rows[i : i + step])
            t.let_go()

        dtype = np.float16 if t.dtype == "F16" else np.float32
        made = cls(t.shape, dtype, read, t.dtype, read_parts)
        made._source = t
        return made

    @classmethod
    def from_values(cls, values: Any) -> LazyArray:
        """Return known values as float32."""
        array = np.asarray(values, np.float32)
        return cls(array.shape, np.float32, lambda: array)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def read_bytes(self, type: GGMLType) -> Iterator[memoryview] | None:
        """Return the stored bytes in order, in parts of whole rows, of an unchanged tensor that is
        stored in this type; None for others. Parts with NaN in BF16 are made quiet."""
        t = self._source
        if t is None or t.dtype != str(type).upper() or t.dtype not in ("F32", "F16", "BF16"):
            return None
        flat = t.array().reshape(-1)

        def parts() -> Iterator[memoryview]:
            for i in range(0, flat.size, PART):
                part = np.ascontiguousarray(flat[i : i + PART])
                if t.dtype == "BF16" and ((part & 0x7FFF) > 0x7F80).any():
                    part = to_bytes(type, from_bits(t.dtype, part))
                yield part.view(np.uint8).data
            t.let_go()

        return parts()

    def read(self) -> Array:
        """Compute the values of the array."""
        made = self._make()
        if made.shape != self.shape:
            raise AssertionError(f"planned shape {self.shape}, computed {made.shape}")
        return made

    def read_parts(self) -> Iterator[Array]:
        """Compute the values in order, in parts of whole rows."""
        if self._make_parts is None:
            yield self.read()
        else:
            yield from self._make_parts()

    def bits(self) -> Array:
        """Return the stored elements without a conversion: of BF16 and FP8, unsigned integers."""
        if self._source is None:
            raise AssertionError("only a tensor of a file has stored elements")
        values = self._source.array().copy()
        self._source.let_go()
        return values

    def integers(self) -> npt.NDArray[np.int64]:
        """Return the values of a stored tensor of integers, which float32 would round.

        Raises ModelError for a tensor of another type.
        """
        if not self.stored.startswith(("I", "U")):
            raise ModelError(f"a tensor must have a type of integers, got {self.stored}")
        return self.bits().astype(np.int64)

    def _new(self, shape: Sequence[int], make: Callable[[], Array]) -> LazyArray:
        if self.packed is not None and (not shape or shape[-1] % self.packed.type_size):
            raise ModelError(f"blocks of {self.packed} cannot be divided; {UNPACKED}")
        return LazyArray(shape, self.dtype, make, self.stored, packed=self.packed)

    def reshape(self, *shape: int) -> LazyArray:
        """Return the elements in another shape; one size may be -1."""
        n, known = int(np.prod(self.shape)), int(np.prod([s for s in shape if s >= 0]))
        found = tuple(n // known if s < 0 and known else s for s in shape)
        if int(np.prod(found)) != n:
            raise ModelError(
                f"a tensor of shape {list(self.shape)} cannot have shape {list(shape)}"
            )
        return self._new(found, lambda: self.read().reshape(found))

    def transpose(self, *axes: int) -> LazyArray:
        """Return the dimensions in another order; without axes, in reverse."""
        order = axes or tuple(range(self.ndim))[::-1]
        if self.packed is not None and order[-1] != self.ndim - 1:
            raise ModelError(f"blocks of {self.packed} cannot be transposed; {UNPACKED}")
        shape = [self.shape[axis] for axis in order]
        return self._new(shape, lambda: self.read().transpose(order))

    def swap(self, a: int, b: int) -> LazyArray:
        """Return the array with two dimensions exchanged."""
        order = list(range(self.ndim))
        order[a], order[b] = order[b], order[a]
        return self.transpose(*order)

    def squeeze(self) -> LazyArray:
        """Remove dimensions of size 1."""
        return self.reshape(*(s for s in self.shape if s != 1))

    def rows(self, start: int, end: int | None = None, axis: int = 0) -> LazyArray:
        """Return elements start .. end - 1 of a dimension."""
        axis %= self.ndim
        first, last, _ = slice(start, end).indices(self.shape[axis])
        shape = list(self.shape)
        shape[axis] = max(last - first, 0)
        cut = (*[slice(None)] * axis, slice(first, last))
        return self._new(shape, lambda: self.read()[cut])

    def split(self, sizes: Sequence[int], axis: int = 0) -> list[LazyArray]:
        """Split a dimension into parts with the given sizes."""
        if sum(sizes) != self.shape[axis]:
            raise ModelError(f"a dimension of {self.shape[axis]} cannot have parts {[*sizes]}")
        ends = np.cumsum(sizes).tolist()
        return [self.rows(end - n, end, axis) for n, end in zip(sizes, ends, strict=True)]

    def take(self, indices: Sequence[int], axis: int) -> LazyArray:
        """Return a dimension's elements in the order of indices."""
        order = np.asarray(indices)
        shape = (*self.shape[:axis], len(order), *self.shape[axis + 1 :])
        return self._new(shape, lambda: self.read().take(order, axis))

    def concat(self, others: Sequence[LazyArray], axis: int) -> LazyArray:
        """Join this array and others along an existing dimension."""
        arrays, shape = [self, *others], list(self.shape)
        shape[axis] = sum(a.shape[axis] for a in arrays)
        if any(_drop_axis(a.shape, axis) != _drop_axis(shape, axis) for a in others):
            raise ModelError(f"shapes {[list(a.shape) for a in arrays]} cannot be joined")
        return self._new(shape, lambda: np.concatenate([a.read() for a in arrays], axis))

    def stack(self, others: Sequence[LazyArray]) -> LazyArray:
        """Join this array and others of its shape along a new first dimension."""
        arrays = [self, *others]

        def make() -> Array:
            made = np.empty((len(arrays), *self.shape), self.dtype)
            for i, array in enumerate(arrays):
                made[i] = array.read()
            return made

        def make_parts() -> Iterator[Array]:
            return (part for array in arrays for part in array.read_parts())

        shape = (len(arrays), *self.shape)
        return LazyArray(shape, self.dtype, make, self.stored, make_parts, self.packed)

    def map(self, function: Callable[[Array], Array]) -> LazyArray:
        """Apply a function that keeps shape and type, for example `lambda x: x + 1`."""
        if self.packed is not None:
            raise ModelError(f"values of blocks of {self.packed} cannot be changed; {UNPACKED}")
        if self.dtype.kind == "u":
            raise AssertionError("bits cannot be changed as values")
        return self._new(self.shape, lambda: function(self.read()).astype(self.dtype, copy=False))

    def n_elements(self, n_values: int) -> int:
        """Return how many elements of a row are this number of values."""
        if self.packed is None:
            return n_values
        if n_values % self.packed.block_size:
            raise ModelError(
                f"blocks of {self.packed} cannot be divided at {n_values} values; {UNPACKED}"
            )
        return n_values // self.packed.block_size * self.packed.type_size


NamedArrays = Iterator[tuple[str, LazyArray]]  # names and tensors of a new file


def concat(arrays: Sequence[LazyArray], axis: int = 0) -> LazyArray:
    """Join arrays along an existing dimension."""
    return arrays[0].concat(arrays[1:], axis)


def stack(arrays: Sequence[LazyArray]) -> LazyArray:
    """Join arrays of one shape along a new first dimension."""
    for other in arrays:
        if other.shape != arrays[0].shape:
            shapes = f"{[*arrays[0].shape]}, {[*other.shape]}"
            raise ModelError(f"shapes {shapes} cannot be stacked")
    return arrays[0].stack(arrays[1:])


def _drop_axis(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])

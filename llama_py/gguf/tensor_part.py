"""A file's tensor on a device, in whole or in part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ggml_py.backend import Bytes, Device, FilePart, slice_ranges
from ggml_py.tensor import Tensor
from llama_py.gguf.file import TensorInfo

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class TensorCut:
    """Part of a file's tensor on a device.

    dim     dimension along which it is cut; None: it is whole
    ranges  consecutive ranges of that dimension
    """

    tensor: Tensor
    device: Device
    info: TensorInfo
    dim: int | None = None
    ranges: tuple[Range, ...] = ()

    def data(self) -> Bytes:
        """Return the part's bytes, copied only if they are not contiguous."""
        return read_ranges(self.info, self.dim, self.ranges)

    def file_part(self) -> FilePart | None:
        """Return the position of these bytes in a file, or None."""
        info = self.info
        if info.path is None:
            return None
        if self.dim is None:
            whole = (info.nbytes,), 0, ((0, info.nbytes),)
            return FilePart(info.path, info.offset, *whole)
        axis, ranges = _axis(info, self.dim, self.ranges)
        return FilePart(info.path, info.offset, _shape(info), axis, tuple(ranges))


def read_ranges(info: TensorInfo, dim: int | None, ranges: Iterable[Range]) -> Bytes:
    """Return the file's bytes of ranges of a dimension; contiguous bytes are not copied."""
    if dim is None:
        return info.data
    axis, ranges = _axis(info, dim, ranges)
    if not any(info.data.strides):  # data was forgotten
        n = sum(b - a for a, b in ranges)
        return info.data[: info.nbytes // _shape(info)[axis] * n]
    return slice_ranges(info.data, _shape(info), axis, ranges)


def _shape(info: TensorInfo) -> tuple[int, ...]:
    """Return a tensor's shape as rows of bytes."""
    ne = info.ne
    return ne[3], ne[2], ne[1], info.type.row_size(ne[0])


def _axis(info: TensorInfo, dim: int, ranges: Iterable[Range]) -> tuple[int, list[Range]]:
    """Return the axis of `_shape` for a dimension, and ranges of its bytes."""
    size = info.type.row_size
    return 3 - dim, [(size(a), size(b)) if dim == 0 else (a, b) for a, b in ranges]


def cuts_blocks(info: TensorInfo, dim: int | None, ranges: Iterable[Range]) -> bool:
    """Return True if a range ends within a quantization block."""
    return dim == 0 and any(x % info.type.block_size for r in ranges for x in r)

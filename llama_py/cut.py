"""Some of a file's tensor, or all of it, on a device."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ggml_py.backend import Bytes, Device
from ggml_py.tensor import Tensor
from llama_py.gguf_file import TensorInfo

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Cut:
    """What a device has of a file's tensor.

    dim     along which it is cut; None: it is whole
    ranges  of that, one after another
    """

    tensor: Tensor
    device: Device
    info: TensorInfo
    dim: int | None = None
    ranges: tuple[Range, ...] = ()

    def data(self) -> Bytes:
        """Its bytes, copied only if they do not lie together."""
        return bytes_of(self.info, self.dim, self.ranges)


def bytes_of(info: TensorInfo, dim: int | None, ranges: Iterable[Range]) -> Bytes:
    """The file's bytes of these ranges of a dimension; those that lie together are not copied."""
    if dim is None:
        return info.data
    ne, t = info.ne, info.type
    rows = info.data.reshape(ne[3], ne[2], ne[1], t.row_size(ne[0]))
    if dim == 0:
        ranges = [(t.row_size(a), t.row_size(b)) for a, b in ranges]
    axis = 3 - dim
    if not any(info.data.strides):  # there in name only
        n = sum(b - a for a, b in ranges)
        return info.data[: info.nbytes // rows.shape[3 - dim] * n]
    parts = [rows[(slice(None),) * axis + (slice(a, b),)] for a, b in ranges]
    found = parts[0] if len(parts) == 1 else np.concatenate(parts, axis)
    return np.ascontiguousarray(found).reshape(-1)


def cuts_blocks(info: TensorInfo, dim: int | None, ranges: Iterable[Range]) -> bool:
    """Whether a range ends within a block of values that are quantized together."""
    return dim == 0 and any(x % info.type.block_size for r in ranges for x in r)

"""Values of tensors in any memory: reading, writing and moving."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ggml_py.backend.host_memory import HostBuffer
from ggml_py.backend.processes import PeerCopyBuffer
from ggml_py.tensor import Bytes, Tensor, numpy_dtype


def move(source: Tensor, target: Tensor) -> None:
    """Copy the bytes of a tensor into another one, which may be on another device."""
    assert target.buffer is not None, f"{target} is not allocated"
    if isinstance(source.buffer, PeerCopyBuffer):
        place = source.offset, source.nbytes, target.buffer, target.offset
        if source.buffer.copy_to_peer(*place):
            return
    target.buffer.write(target.offset, tensor_bytes(source))


def tensor_bytes(t: Tensor) -> Bytes:
    """Return the tensor's bytes, first to last element, copied to the host."""
    assert t.buffer is not None, f"{t} is not allocated"
    return t.buffer.read(t.offset, t.nbytes)


def set_tensor(t: Tensor, values: npt.NDArray[Any]) -> None:
    """Write values (a dense array with the tensor's bytes) into a contiguous tensor."""
    assert t.buffer is not None, f"{t} is not allocated"
    raw = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
    if raw.size != t.nbytes:
        raise ValueError(f"{t} must have {t.nbytes} bytes, got {raw.size}")
    t.buffer.write(t.offset, raw)


def host_array(t: Tensor) -> npt.NDArray[Any] | None:
    """Return a writable view [ne3, ne2, ne1, ne0] of a dense tensor in host memory, bf16 as uint16.
    None in other memory, and for quantized types."""
    dtype = numpy_dtype(t)
    if dtype is None or not isinstance(t.buffer, HostBuffer) or not t.is_contiguous():
        return None
    values: npt.NDArray[Any] = t.buffer.view(t.offset, t.nbytes).view(dtype)
    return values.reshape(t.ne[::-1])


def get_tensor(t: Tensor) -> npt.NDArray[Any]:
    """Return values as a NumPy array [ne3, ne2, ne1, ne0]; bf16 as float32. For a quantized type,
    its raw bytes."""
    return tensor_bytes(t) if numpy_dtype(t) is None else t.numpy()

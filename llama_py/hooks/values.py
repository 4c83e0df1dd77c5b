"""Conversion of node values to arrays and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ggml_py.backend import Device, get_tensor
from ggml_py.errors import ContextError
from ggml_py.graph import Graph
from ggml_py.ops import cast
from ggml_py.plan.sched import Scheduler
from ggml_py.tensor import Tensor, numpy_dtype, strided_view
from ggml_py.types import F32 as F32_TYPE
from llama_py.batch import F32

Values = npt.NDArray[Any]


def get_array_shape(t: Tensor) -> tuple[int, ...]:
    """Return the array's shape: the tensor's, first dimension last, without trailing 1s from the
    third on."""
    n = max((i + 1 for i in range(2, 4) if t.ne[i] != 1), default=2)
    return t.ne[:n][::-1]


def read(t: Tensor, devices: list[Device]) -> Values:
    """Read a tensor as float32, or as its integers, [..., ne1, ne0]."""
    if numpy_dtype(t) is None:
        t = compute_tensor(cast(as_leaf(t), F32_TYPE), devices)
    values = get_tensor(t)
    if values.dtype.kind == "f":
        values = values.astype(np.float32, copy=False)
    return values.reshape(get_array_shape(t))


def write(t: Tensor, values: Any, name: str) -> None:
    """Write an array to a tensor; its shape must be equal or broadcast to the tensor's.

    Raises ContextError for another shape, and for a tensor of a quantized type.
    """
    dtype = numpy_dtype(t)
    if dtype is None or t.buffer is None:
        raise ContextError(f"{name}: {t} has a quantized type, so its value cannot be changed")
    try:
        new: F32 = np.broadcast_to(np.asarray(values), get_array_shape(t)).reshape(t.ne[::-1])
    except ValueError:
        raise ContextError(
            f"{name}: new value must have shape {get_array_shape(t)}, got {np.shape(values)}"
        ) from None
    raw = t.buffer.read(t.offset, t.nbytes)
    strided_view(t, raw)[...] = to_bf16(new) if t.type.name == "bf16" else new.astype(dtype)
    t.buffer.write(t.offset, raw)


def to_bf16(values: F32) -> npt.NDArray[np.uint16]:
    """Round to BF16, ties to even; NaN is preserved."""
    bits = values.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def as_leaf(t: Tensor) -> Tensor:
    """Return a leaf on a tensor's bytes, without its sources."""
    leaf = Tensor(t.type, t.ne, name=t.name, nb=t.nb)
    leaf.buffer, leaf.offset = t.buffer, t.offset
    return leaf


def compute_tensor(t: Tensor, devices: list[Device]) -> Tensor:
    """Run the nodes that lead to a tensor from leafs with values."""
    graph = Graph()
    graph.build_forward_expand(t)
    Scheduler(devices).plan(graph).run()
    return t

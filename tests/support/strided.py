"""Tensors of any strides next to the NumPy arrays they must equal, for property tests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from ggml_py import ops
from ggml_py.backend import Device
from ggml_py.errors import ShapeError
from ggml_py.graph import Graph
from ggml_py.plan.sched import Scheduler
from ggml_py.tensor import FLAG_OUTPUT, Tensor
from ggml_py.types import BY_NAME

Array = NDArray[Any]
Shape = tuple[int, ...]
Draw = Callable[..., Any]

# Elements as they lie in memory. A block of q8_0 is one: it is never taken apart.
DTYPES = {
    "f32": "<f4",
    "f16": "<f2",
    "bf16": "<u2",
    "i8": "i1",
    "i16": "<i2",
    "i32": "<i4",
    "i64": "<i8",
    "q8_0": "V34",
}
COUNT = 127  # different values: whole numbers that every type holds exactly

shapes = st.tuples(*[st.integers(1, 5)] * 4)
# Some have no elements.
shapes_or_empty = st.one_of(shapes, shapes, st.tuples(*[st.integers(0, 3)] * 4))


class Value(NamedTuple):
    """A tensor, and the array [ne3, ne2, ne1, ne0] it must equal: bytes `root` from `start` on."""

    t: Tensor
    x: Array
    root: Array
    start: int = 0


def block(type: str) -> int:
    return BY_NAME[type].block_size


def leaf(device: Device, type: str, ne: Shape) -> Value:
    """A dense tensor in the device's memory; neighbours differ. ne[0] counts blocks."""
    t = Tensor(BY_NAME[type], (ne[0] * block(type), *ne[1:]))
    root = np.zeros(t.nbytes, np.uint8)
    x = root.view(DTYPES[type]).reshape(ne[::-1])
    if type == "q8_0":
        root[:] = np.arange(root.size) % COUNT
    else:
        x[...] = stored(np.arange(x.size).reshape(x.shape) % COUNT, type)
    t.buffer = device.alloc(max(t.nbytes, 1))
    t.buffer.write(0, root)
    return Value(t, x, root)


def stored(values: Array, type: str) -> Array:
    """Values as they lie in memory."""
    if type == "bf16":
        return (values.astype("<f4").view("<u4") >> 16).astype("<u2")
    return values.astype(DTYPES[type])


def values(x: Array, type: str) -> Array:
    """The float64 values of what lies in memory."""
    return (x.astype("<u4") << 16).view("<f4").astype("<f8") if type == "bf16" else x.astype("<f8")


def permuted(v: Value, axes: Shape) -> Value:
    x = np.moveaxis(v.x, (3, 2, 1, 0), [3 - a for a in axes])
    return Value(ops.permute(v.t, *axes), x, v.root, v.start)


def viewed(v: Value, ne: Shape, nb: Shape, offset: int) -> Value:
    """The window of shape ne (in blocks) with byte strides nb[1:], `offset` bytes into v."""
    t = ops.view_4d(v.t, ne[0] * v.t.type.block_size, *ne[1:], *nb[1:], offset)
    start = v.start + offset
    return Value(t, array(ne, v.x.dtype, v.root, start, nb), v.root, start)


def array(ne: Shape, dtype: Any, root: Array, start: int, nb: Shape) -> Array:
    """What ne and nb, in ggml's order, show of some bytes."""
    if 0 in ne:
        return np.zeros(ne[::-1], dtype)
    return np.ndarray(ne[::-1], dtype, root.data, start, nb[::-1])


def strided(draw: Draw, device: Device, type: str, ne: Shape) -> Value:
    """A tensor of shape ne (in blocks): a permuted window of a larger leaf."""
    kept = [0] if block(type) > 1 else []
    axes = (*kept, *draw(st.permutations(range(len(kept), 4))))
    inside = tuple(ne[a] for a in axes)
    edges = [draw(st.tuples(*[st.integers(0, 2)] * 4)) for _ in range(2)]
    steps = (1, *draw(st.tuples(*[st.integers(1, 2)] * 3)))
    outside = zip(edges[0], inside, steps, edges[1], strict=True)
    whole = leaf(device, type, tuple(b + n * s + a for b, n, s, a in outside))
    nb = tuple(b * s for b, s in zip(whole.t.nb, steps, strict=True))
    offset = sum(b * n for b, n in zip(whole.t.nb, edges[0], strict=True))
    v = permuted(viewed(whole, inside, nb, offset), axes)
    assert v.x.shape == ne[::-1]
    return v


def compute(device: Device, *results: Tensor) -> None:
    """Run a graph of these results; all keep their memory."""
    graph = Graph()
    for t in results:
        t.flags |= FLAG_OUTPUT
        graph.build_forward_expand(t)
    Scheduler([device]).plan(graph).run()


def result(device: Device, t: Tensor) -> Array:
    """A dense result [ne3, ne2, ne1, ne0] as it lies in memory."""
    compute(device, t)
    assert t.is_contiguous()
    shape = (*t.ne[:0:-1], t.ne[0] // t.type.block_size)
    return memory(t).view(DTYPES[t.type.name]).reshape(shape)


def memory(t: Tensor) -> Array:
    """The tensor's bytes."""
    assert t.buffer is not None
    return t.buffer.read(t.offset, t.nbytes)


def accepted(device: Device, build: Callable[..., Tensor], *sources: Tensor) -> Tensor:
    """The node on these sources, or on dense copies of them where its rule or the device wants
    those."""
    with suppress(ShapeError):
        t = build(*sources)
        if device.why_not(t) == "":
            return t
    t = build(*map(ops.cont, sources))
    assert device.why_not(t) == ""
    return t

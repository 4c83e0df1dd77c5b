"""OpenCL launchers of the ops in ggml_py/ops/conv.py."""

from __future__ import annotations

from ggml_opencl.conditions import FLOATS, READABLE, all_conditions, needs_type
from ggml_opencl.table import Launch, defines, items, table
from ggml_py.tensor import Tensor

COLUMNS = defines(COLUMNS=1)
DIRECT = defines(DIRECT=1)
PLANE = ("s0", "s1", "p0", "p1", "d0", "d1")
LINE = ("s0", None, "p0", None, "d0", None)
VOLUME = ("s0", "s1", "s2", "p0", "p1", "p2", "d0", "d1", "d2")

CONVERTED = all_conditions(
    needs_type(1, *FLOATS), needs_type(-1, *READABLE)
)  # the kernel's elements are not read
SUMMED = all_conditions(needs_type(0, *READABLE), needs_type(1, *FLOATS), needs_type(-1, *FLOATS))


def _params(node: Tensor, *names: str | None) -> tuple[int, ...]:
    """Return parameters of these names; 0 for None."""
    return tuple(0 if name is None else node.param(name) for name in names)


def to_images(t: Tensor) -> Tensor:
    """Return [n, C, N] as images with a height of 1: [n, 1, C, N]."""
    ne, nb = (t.ne[0], 1, *t.ne[1:3]), (t.nb[0], t.nb[1], *t.nb[1:3])
    image = Tensor(t.type, ne, nb=nb)
    image.buffer, image.offset = t.buffer, t.offset
    return image


@table.op("IM2COL", CONVERTED)
def im2col(node: Tensor) -> list[Launch]:
    a, b = node.sources()
    n = items(node.n_elements)
    if node.param("is_2d"):
        scalars = (a.ne[0], a.ne[1], *_params(node, *PLANE))
        return [Launch("conv", "im2col", (b, node), n, scalars, COLUMNS)]
    scalars = (a.ne[0], 1, *_params(node, *LINE))
    rows = Tensor(node.type, (*node.ne[:2], 1, node.ne[2]))
    rows.buffer, rows.offset = node.buffer, node.offset
    return [Launch("conv", "im2col", (to_images(b), rows), n, scalars, COLUMNS)]


@table.op("IM2COL_3D", CONVERTED)
def im2col_3d(node: Tensor) -> list[Launch]:
    a, b = node.sources()
    channels = node.param("ic")
    depth = node.ne[3] // (b.ne[3] // channels)
    scalars = (*a.ne[:3], depth, channels, *_params(node, *VOLUME))
    return [Launch("conv", "im2col_3d", (b, node), items(node.n_elements), scalars, COLUMNS)]


def _direct(kernel: str, node: Tensor, *scalars: int) -> list[Launch]:
    tensors, n = (*node.sources(), node), items(node.n_elements)
    return [Launch("conv", kernel, tensors, n, scalars, DIRECT)]


@table.op("CONV_2D", SUMMED)
def conv_2d(node: Tensor) -> list[Launch]:
    return _direct("conv_2d", node, 0, *_params(node, *PLANE))


@table.op("CONV_2D_DW", SUMMED)
def conv_2d_dw(node: Tensor) -> list[Launch]:
    return _direct("conv_2d", node, 1, *_params(node, *PLANE))


@table.op("CONV_3D", SUMMED)
def conv_3d(node: Tensor) -> list[Launch]:
    return _direct("conv_3d", node, node.param("c"), node.param("oc"), *_params(node, *VOLUME))

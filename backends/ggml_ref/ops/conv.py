"""NumPy references of the ops in ggml_py/ops/conv.py."""

from __future__ import annotations

import numpy as np

from ggml_py.tensor import Tensor
from ggml_ref.functions import einsum, tensordot
from ggml_ref.table import table
from ggml_ref.values import Values

Axis = tuple[int, int, int, int]  # elements of the result, stride, padding, dilation


def unfold(x: Values, kernel: tuple[int, ...], axes: list[Axis]) -> Values:
    """Return windows of the last dimensions of x: [.., out0, out1, .., k0, k1, ..], 0 where the
    kernel reaches over the edge.
    """
    lead = x.ndim - len(kernel)
    for i, (k, (n, s, p, d)) in enumerate(zip(kernel, axes, strict=True)):
        at = np.arange(n)[:, None] * s + np.arange(k) * d - p
        axis = lead + 2 * i
        inside = (at >= 0) & (at < x.shape[axis])
        shape = inside.shape + (1,) * (x.ndim - axis - 1)
        x = np.where(inside.reshape(shape), x.take(np.where(inside, at, 0), axis), 0)
    n = len(kernel)
    return x.transpose(
        *range(lead), *(lead + 2 * i for i in range(n)), *(lead + 2 * i + 1 for i in range(n))
    )


def _plane(node: Tensor, height: int, width: int) -> list[Axis]:
    p = node.param
    return [(height, p("s1"), p("p1"), p("d1")), (width, p("s0"), p("p0"), p("d0"))]


def _volume(node: Tensor, depth: int, height: int, width: int) -> list[Axis]:
    p = node.param
    return [(depth, p("s2"), p("p2"), p("d2")), *_plane(node, height, width)]


@table.op("IM2COL")
def im2col(node: Tensor, a: Values, b: Values) -> Values:
    if node.param("is_2d"):
        x = unfold(b, a.shape[-2:], _plane(node, node.ne[2], node.ne[1]))
        return x.transpose(0, 2, 3, 1, 4, 5)
    width = _plane(node, 1, node.ne[1])[1:]
    return unfold(b[0], a.shape[-1:], width).transpose(0, 2, 1, 3)


@table.op("IM2COL_3D")
def im2col_3d(node: Tensor, a: Values, b: Values) -> Values:
    b = b.reshape(-1, node.param("ic"), *b.shape[1:])
    axes = _volume(node, node.ne[3] // b.shape[0], node.ne[2], node.ne[1])
    return unfold(b, a.shape[1:], axes).transpose(0, 2, 3, 4, 1, 5, 6, 7)


@table.op("CONV_2D")
def conv_2d(node: Tensor, a: Values, b: Values) -> Values:
    x = unfold(b, a.shape[-2:], _plane(node, node.ne[1], node.ne[0]))
    return np.moveaxis(tensordot(a, x, ((1, 2, 3), (1, 4, 5))), 0, 1)


@table.op("CONV_2D_DW")
def conv_2d_dw(node: Tensor, a: Values, b: Values) -> Values:
    x = unfold(b, a.shape[-2:], _plane(node, node.ne[1], node.ne[0]))
    return einsum("cij,ncyxij->ncyx", a[:, 0], x)


@table.op("CONV_3D")
def conv_3d(node: Tensor, a: Values, b: Values) -> Values:
    channels = node.param("c")
    a = a.reshape(node.param("oc"), channels, *a.shape[1:])
    b = b.reshape(node.param("n"), channels, *b.shape[1:])
    x = unfold(b, a.shape[-3:], _volume(node, node.ne[2], node.ne[1], node.ne[0]))
    return np.moveaxis(tensordot(a, x, ((1, 2, 3, 4), (1, 5, 6, 7))), 0, 1)

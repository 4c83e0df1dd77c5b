"""Convolutions of images and volumes: the direct ops, and the forms through IM2COL and MUL_MAT.

Kernels are always `a`, images `b`. Strides s, paddings p and dilations d are of width, height and
depth, in that order.
"""

from __future__ import annotations

from ggml_py.ops.copy import cont
from ggml_py.ops.matrix import mul_mat
from ggml_py.ops.registry import node, op, require
from ggml_py.ops.shape import permute, reshape
from ggml_py.tensor import Shape, Tensor
from ggml_py.types import BY_NAME, F16, F32, GGMLType

Triple = tuple[int, int, int]


def _output_size(a: Tensor, b: Tensor, i: int, s: int, p: int, d: int) -> int:
    """Return the length of the result along dimension i (ggml.c:ggml_calc_conv_output_size)."""
    rule = f"conv: stride {s} and dilation {d} must be positive, padding {p} not negative"
    require(s > 0 and p >= 0 and d > 0, rule, a, b)
    n = int((b.ne[i] + 2 * p - d * (a.ne[i] - 1) - 1) / s) + 1  # as C divides, towards 0
    require(n > 0, "conv: the padded image is smaller than the kernel", a, b)
    return n


def _columns(a: Tensor) -> GGMLType:
    """Return the type of the columns that a kernel is multiplied with."""
    return F32 if a.type is BY_NAME["bf16"] else F16


@op("IM2COL", "s0:i s1:i p0:i p1:i d0:i d1:i is_2d:i")
def im2col(
    a: Tensor,
    b: Tensor,
    s0: int,
    s1: int,
    p0: int,
    p1: int,
    d0: int,
    d1: int,
    is_2d: bool,
    type: GGMLType,
) -> Tensor:
    """The image under the kernel at every place, as rows (ggml.c:ggml_im2col).

    2-d: a [KW, KH, IC, OC], b [W, H, IC, N] -> [IC*KH*KW, OW, OH, N]
    1-d: a [K, IC, OC], b [W, IC, N] -> [IC*K, OW, N]; s1, p1, d1 are not used
    """
    width = _output_size(a, b, 0, s0, p0, d0)
    ne: Shape
    if is_2d:
        require(
            a.ne[2] == b.ne[2],
            "im2col: kernel and image must have the same number of channels",
            a,
            b,
        )
        height = _output_size(a, b, 1, s1, p1, d1)
        ne = (a.ne[0] * a.ne[1] * a.ne[2], width, height, b.ne[3])
    else:
        fits = a.ne[1] == b.ne[1] and b.ne[3] == 1
        require(fits, "im2col: kernel and image must have the same number of channels", a, b)
        ne = (a.ne[0] * a.ne[1], width, b.ne[2], 1)
    return node("IM2COL", type, ne, a, b, params=(s0, s1, p0, p1, d0, d1, int(is_2d)))


@op("IM2COL_3D", "s0:i s1:i s2:i p0:i p1:i p2:i d0:i d1:i d2:i ic:i")
def im2col_3d(
    a: Tensor, b: Tensor, ic: int, s: Triple, p: Triple, d: Triple, type: GGMLType
) -> Tensor:
    """The volume under the kernel at every place, as rows (ggml.c:ggml_im2col_3d).

    a [KW, KH, KD, IC*OC], b [W, H, D, IC*N] -> [IC*KD*KH*KW, OW, OH, OD*N]
    """
    require(ic > 0 and b.ne[3] % ic == 0, f"im2col_3d: b must have {ic} channels per batch", a, b)
    n0, n1, n2 = (_output_size(a, b, i, s[i], p[i], d[i]) for i in range(3))
    ne = (a.ne[0] * a.ne[1] * a.ne[2] * ic, n0, n1, n2 * (b.ne[3] // ic))
    return node("IM2COL_3D", type, ne, a, b, params=(*s, *p, *d, ic))


@op("CONV_2D", "s0:i s1:i p0:i p1:i d0:i d1:i", rounds=(0, 1))
def conv_2d_direct(
    a: Tensor, b: Tensor, s0: int, s1: int, p0: int, p1: int, d0: int, d1: int
) -> Tensor:
    """a [KW, KH, IC, OC], b [W, H, IC, N] -> [OW, OH, OC, N] (ggml.c:ggml_conv_2d_direct)."""
    require(
        a.ne[2] == b.ne[2], "conv_2d: kernel and image must have the same number of channels", a, b
    )
    ne = (_output_size(a, b, 0, s0, p0, d0), _output_size(a, b, 1, s1, p1, d1), a.ne[3], b.ne[3])
    return node("CONV_2D", b.type, ne, a, b, params=(s0, s1, p0, p1, d0, d1))


@op("CONV_2D_DW", "s0:i s1:i p0:i p1:i d0:i d1:i", rounds=(0, 1))
def conv_2d_dw_direct(
    a: Tensor, b: Tensor, s0: int, s1: int, p0: int, p1: int, d0: int, d1: int
) -> Tensor:
    """Each channel with its own kernel (ggml.c:ggml_conv_2d_dw_direct). a [KW, KH, 1, C],
    b [W, H, C, N] -> [OW, OH, C, N], channels innermost in memory where b's are
    """
    fits = a.ne[2] == 1 and a.ne[3] == b.ne[2]
    require(fits, "conv_2d_dw: a must be one kernel per channel, [KW, KH, 1, C]", a, b)
    ne = (_output_size(a, b, 0, s0, p0, d0), _output_size(a, b, 1, s1, p1, d1), b.ne[2], b.ne[3])
    t = node("CONV_2D_DW", b.type, ne, a, b, params=(s0, s1, p0, p1, d0, d1))
    if b.nb[0] > b.nb[2] and b.nb[1] > b.nb[0] and b.nb[2] == b.type.type_size:
        t.nb = (ne[2] * t.nb[0], ne[0] * ne[2] * t.nb[0], t.nb[0], t.nb[3])
    return t


@op("CONV_3D", "s0:i s1:i s2:i p0:i p1:i p2:i d0:i d1:i d2:i c:i n:i oc:i", rounds=(0, 1))
def conv_3d_direct(
    a: Tensor, b: Tensor, s: Triple, p: Triple, d: Triple, c: int, n: int, oc: int
) -> Tensor:
    """a [KW, KH, KD, c*oc], b [W, H, D, c*n] -> F32 [OW, OH, OD, oc*n]
    (ggml.c:ggml_conv_3d_direct).
    """
    fits = min(c, n, oc) > 0 and a.ne[3] == c * oc and b.ne[3] == c * n
    require(fits, f"conv_3d: needs {c} x {oc} kernels and {c} x {n} images", a, b)
    n0, n1, n2 = (_output_size(a, b, i, s[i], p[i], d[i]) for i in range(3))
    return node("CONV_3D", F32, (n0, n1, n2, oc * n), a, b, params=(*s, *p, *d, c, n, oc))


def conv_1d(a: Tensor, b: Tensor, s0: int, p0: int, d0: int) -> Tensor:
    """a [K, IC, OC], b [W, IC, N] -> [OW, OC, N] (ggml.c:ggml_conv_1d)."""
    x = im2col(a, b, s0, 0, p0, 0, d0, 0, False, _columns(a))
    rows = reshape(x, x.ne[0], x.ne[1] * x.ne[2])
    y = mul_mat(rows, reshape(a, a.ne[0] * a.ne[1], a.ne[2]))
    return reshape(y, x.ne[1], a.ne[2], x.ne[2])


def conv_1d_dw(a: Tensor, b: Tensor, s0: int, p0: int, d0: int) -> Tensor:
    """Each channel with its own kernel (ggml.c:ggml_conv_1d_dw).

    a [K, 1, C], b [W, C] -> [OW, C]
    """
    images = reshape(b, b.ne[0], 1, b.ne[1], b.ne[2])
    y = mul_mat(im2col(a, images, s0, 0, p0, 0, d0, 0, False, _columns(a)), a)
    return reshape(y, y.ne[0], y.ne[2], 1)


def conv_2d(a: Tensor, b: Tensor, s0: int, s1: int, p0: int, p1: int, d0: int, d1: int) -> Tensor:
    """conv_2d_direct by way of IM2COL and MUL_MAT (ggml.c:ggml_conv_2d)."""
    x = im2col(a, b, s0, s1, p0, p1, d0, d1, True, _columns(a))
    rows = reshape(x, x.ne[0], x.ne[1] * x.ne[2] * x.ne[3])
    y = mul_mat(rows, reshape(a, x.ne[0], a.ne[3]))
    y = reshape(y, x.ne[1], x.ne[2], x.ne[3], a.ne[3])
    return cont(permute(y, 0, 1, 3, 2))


def conv_2d_dw(
    a: Tensor, b: Tensor, s0: int, s1: int, p0: int, p1: int, d0: int, d1: int
) -> Tensor:
    """conv_2d_dw_direct by way of IM2COL and MUL_MAT (ggml.c:ggml_conv_2d_dw)."""
    n_kernels = a.ne[2] * a.ne[3]
    kernels = reshape(a, a.ne[0], a.ne[1], 1, n_kernels)
    images = reshape(b, b.ne[0], b.ne[1], 1, b.ne[2] * b.ne[3])
    x = im2col(kernels, images, s0, s1, p0, p1, d0, d1, True, _columns(a))
    columns = reshape(x, x.ne[0], x.ne[1] * x.ne[2], b.ne[2], b.ne[3])
    y = mul_mat(reshape(kernels, a.ne[0] * a.ne[1], 1, n_kernels), columns)
    return reshape(y, x.ne[1], x.ne[2], b.ne[2], b.ne[3])


def conv_3d(a: Tensor, b: Tensor, ic: int, s: Triple, p: Triple, d: Triple) -> Tensor:
    """conv_3d_direct by way of IM2COL_3D and MUL_MAT (ggml.c:ggml_conv_3d)."""
    x = im2col_3d(a, b, ic, s, p, d, _columns(a))
    oc, n = a.ne[3] // ic, b.ne[3] // ic
    rows = reshape(x, x.ne[0], x.ne[1] * x.ne[2] * x.ne[3])
    y = mul_mat(rows, reshape(a, x.ne[0], oc))
    y = reshape(y, x.ne[1] * x.ne[2], x.ne[3] // n, n, oc)
    return reshape(cont(permute(y, 0, 1, 3, 2)), x.ne[1], x.ne[2], x.ne[3] // n, oc * n)

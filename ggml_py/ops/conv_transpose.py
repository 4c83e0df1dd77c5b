"""Convolutions turned round: each input element adds a scaled kernel to the output."""

from __future__ import annotations

from ggml_py.ops.registry import node, op, require
from ggml_py.tensor import Tensor
from ggml_py.types import F32


@op("CONV_TRANSPOSE_1D", "s0:i p0:i d0:i", rounds=(0, 1))
def conv_transpose_1d(a: Tensor, b: Tensor, s0: int, p0: int = 0, d0: int = 1) -> Tensor:
    """a [K, OC, IC], b [W, IC] -> F32 [(W-1)*s0 + K, OC] (ggml.c:ggml_conv_transpose_1d)."""
    require(b.ne[2] == 1 and b.ne[3] == 1, "conv_transpose_1d: b must be a matrix", a, b)
    fits = a.ne[2] == b.ne[1] and a.ne[3] == 1
    require(fits, "conv_transpose_1d: kernel and input must have the same number of channels", a, b)
    plain = s0 > 0 and p0 == 0 and d0 == 1
    require(
        plain,
        f"conv_transpose_1d: padding must be 0 ({p0}), dilation 1 ({d0}), and stride at least 1 "
        f"({s0})",
        a,
    )
    ne = ((b.ne[0] - 1) * s0 + a.ne[0], a.ne[1])
    return node("CONV_TRANSPOSE_1D", F32, ne, a, b, params=(s0, p0, d0))


@op("CONV_TRANSPOSE_2D", "stride:i", rounds=(0, 1))
def conv_transpose_2d_p0(a: Tensor, b: Tensor, stride: int) -> Tensor:
    """a [KW, KH, OC, IC], b [W, H, IC, N] -> F32 [(W-1)*stride + KW, (H-1)*stride + KH, OC, N]
    (ggml.c:ggml_conv_transpose_2d_p0).
    """
    fits = a.ne[3] == b.ne[2]
    require(fits, "conv_transpose_2d: kernel and input must have the same number of channels", a, b)
    require(stride > 0, f"conv_transpose_2d: the stride must be positive, got {stride}", a, b)
    n0, n1 = ((b.ne[i] - 1) * stride + a.ne[i] for i in (0, 1))
    return node("CONV_TRANSPOSE_2D", F32, (n0, n1, a.ne[2], b.ne[3]), a, b, params=(stride,))


@op("COL2IM_1D", "s0:i oc:i p0:i")
def col2im_1d(a: Tensor, s0: int, oc: int, p0: int) -> Tensor:
    """Columns of K samples added up s0 apart, p0 cut off at both ends (ggml.c:ggml_col2im_1d).

    a [K*oc, T] -> [(T-1)*s0 + K - 2*p0, oc]
    """
    require(a.ne[2] == 1 and a.ne[3] == 1, "col2im_1d: a must be a matrix", a)
    require(a.is_contiguous(), "col2im_1d: a must be contiguous", a)
    valid = s0 > 0 and oc > 0 and p0 >= 0
    require(valid, f"col2im_1d: s0={s0} and oc={oc} must be positive, p0={p0} not negative", a)
    k = a.ne[0] // oc
    n = (a.ne[1] - 1) * s0 + k - 2 * p0
    whole = k > 0 and a.ne[0] == k * oc
    require(whole, f"col2im_1d: row length must be a multiple of {oc} channels", a)
    require(n > 0, f"col2im_1d: the result must have at least one sample, got {n}", a)
    return node("COL2IM_1D", a.type, (n, oc), a, params=(s0, oc, p0))

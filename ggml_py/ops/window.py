"""Windowed attention of Segment Anything: windows, relative positions."""

from __future__ import annotations

from ggml_py.ops.registry import node, op, require, view_result
from ggml_py.tensor import Tensor
from ggml_py.types import F16, F32


@op("WIN_PART", "npx:i npy:i w:i")
def win_part(a: Tensor, w: int) -> Tensor:
    """Windows of w x w, row by row, zeros beyond the edges (ggml.c:ggml_win_part).

    a [C, W, H] -> [C, w, w, n_windows]
    """
    require(a.ne[3] == 1 and a.type is F32, "win_part: a must be f32 [C, W, H]", a)
    require(w > 0, f"win_part: the window must be positive, got {w}", a)
    npx, npy = -(-a.ne[1] // w), -(-a.ne[2] // w)
    return node("WIN_PART", F32, (a.ne[0], w, w, npx * npy), a, params=(npx, npy, w))


@op("WIN_UNPART", "w:i")
def win_unpart(a: Tensor, w0: int, h0: int, w: int) -> Tensor:
    """Join windows of win_part (ggml.c:ggml_win_unpart). a [C, w, w, n_windows] -> [C, w0, h0]"""
    require(a.type is F32, "win_unpart: a must be f32", a)
    whole = w > 0 and a.ne[1:] == (w, w, -(-w0 // w) * -(-h0 // w))
    require(whole, f"win_unpart: a must be the {w} x {w} windows of {w0} x {h0}", a)
    return node("WIN_UNPART", F32, (a.ne[0], w0, h0), a, params=(w,))


@op("GET_REL_POS")
def get_rel_pos(a: Tensor, qh: int, kh: int) -> Tensor:
    """Row q - k + n - 1 of a for every query q and key k (ggml.c:ggml_get_rel_pos).

    a F16 [C, 2*n - 1] -> F16 [C, n, n], n = qh = kh, dimension 1 the keys
    """
    square = qh == kh > 0 and a.ne[1] == 2 * kh - 1
    require(square, f"get_rel_pos: a must have 2*{kh} - 1 rows, and qh must equal kh", a)
    return node("GET_REL_POS", F16, (a.ne[0], kh, qh), a)


@op("ADD_REL_POS", "inplace:i")
def add_rel_pos(a: Tensor, pw: Tensor, ph: Tensor, inplace: bool = False) -> Tensor:
    """a[h, w] + ph[h] + pw[w] for every query (ggml.c:ggml_add_rel_pos).

    a [n*n, Q, B] (key h*n + w), pw and ph F32 [n, QW, QH, B] with QW*QH = Q
    """
    alike = pw.same_shape(ph) and pw.type is F32 and ph.type is F32
    require(alike, "add_rel_pos: pw and ph must be f32 of one shape", pw, ph)
    dense = a.is_contiguous() and pw.is_contiguous() and ph.is_contiguous()
    require(dense, "add_rel_pos: all must be contiguous", a, pw, ph)
    n, q0, q1, batch = pw.ne
    fits = a.ne == (n * n, q0 * q1, batch, 1)
    require(fits, "add_rel_pos: a must be [n*n, QW*QH, B] of pw's [n, QW, QH, B]", a, pw)
    if inplace:
        return view_result("ADD_REL_POS", a, a, pw, ph, params=(1,))
    return node("ADD_REL_POS", a.type, a.ne, a, pw, ph, params=(0,))

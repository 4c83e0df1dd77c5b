"""Ops that pad a tensor with zeros or with its elements, or roll its elements."""

from __future__ import annotations

from ggml_py.ops.registry import node, op, require
from ggml_py.tensor import Tensor
from ggml_py.types import F32


@op("PAD", "lp0:i rp0:i lp1:i rp1:i lp2:i rp2:i lp3:i rp3:i circular:i")
def pad_ext(
    a: Tensor, lp0: int, rp0: int, lp1: int, rp1: int, lp2: int, rp2: int, lp3: int, rp3: int
) -> Tensor:
    """a with zeros around it: lp_i before and rp_i after, in dimension i (ggml.c:ggml_pad_ext)."""
    pads = (lp0, rp0, lp1, rp1, lp2, rp2, lp3, rp3)
    require(min(pads) >= 0, f"pad: paddings must not be negative, got {pads}", a)
    ne = tuple(n + pads[2 * i] + pads[2 * i + 1] for i, n in enumerate(a.ne))
    return node("PAD", a.type, ne, a, params=(*pads, 0))


def pad(a: Tensor, p0: int, p1: int, p2: int, p3: int) -> Tensor:
    """a with p_i zeros after its end in dimension i (ggml.c:ggml_pad)."""
    return pad_ext(a, 0, p0, 0, p1, 0, p2, 0, p3)


def pad_ext_circular(
    a: Tensor, lp0: int, rp0: int, lp1: int, rp1: int, lp2: int, rp2: int, lp3: int, rp3: int
) -> Tensor:
    """Pad dimension i with lp_i elements before and rp_i after, from a repeated periodically
    (ggml.c:ggml_pad_ext_circular).
    """
    require(not a.is_empty(), "pad_circular: a must have elements", a)
    t = pad_ext(a, lp0, rp0, lp1, rp1, lp2, rp2, lp3, rp3)
    t.params = (*t.params[:-1], 1)
    return t


def pad_circular(a: Tensor, p0: int, p1: int, p2: int, p3: int) -> Tensor:
    """Append p_i elements from the start of dimension i at its end (ggml.c:ggml_pad_circular)."""
    return pad_ext_circular(a, 0, p0, 0, p1, 0, p2, 0, p3)


@op("PAD_REFLECT_1D", "p0:i p1:i")
def pad_reflect_1d(a: Tensor, p0: int, p1: int) -> Tensor:
    """Rows mirrored about their first (p0 elements) and last element (p1), which are not repeated
    (ggml.c:ggml_pad_reflect_1d). [n, ...] -> [p0 + n + p1, ...]
    """
    fits = 0 <= p0 < a.ne[0] and 0 <= p1 < a.ne[0]
    require(fits, f"pad_reflect_1d: paddings {p0}, {p1} must be shorter than a row", a)
    require(a.is_contiguous() and a.type is F32, "pad_reflect_1d: a must be contiguous f32", a)
    return node("PAD_REFLECT_1D", F32, (a.ne[0] + p0 + p1, *a.ne[1:]), a, params=(p0, p1))


@op("ROLL", "shift0:i shift1:i shift2:i shift3:i")
def roll(a: Tensor, shift0: int, shift1: int, shift2: int, shift3: int) -> Tensor:
    """Element i of dimension k moves to i + shift_k, round the end (ggml.c:ggml_roll)."""
    shifts = (shift0, shift1, shift2, shift3)
    require(a.nb[0] == a.type.type_size, "roll: rows must be dense", a)
    short = all(abs(s) < n for s, n in zip(shifts, a.ne, strict=True))
    require(short, f"roll: shifts {shifts} must be shorter than their dimensions", a)
    return node("ROLL", a.type, a.ne, a, params=shifts)

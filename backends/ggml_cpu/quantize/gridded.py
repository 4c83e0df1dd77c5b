"""Quantization of iq2 and iq3 groups, and of their scales."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import Function, fn
from ggml_cpu.quantize.lanes import (
    LEVELS,
    SCALES,
    SPARE,
    VECTOR,
    W,
    X,
    load_lanes,
    mul,
    put,
    put_half,
    ratio,
)
from ggml_cpu.quantize.points import (
    CODES,
    even_magnitudes,
    grid_index,
    half_steps,
    highest,
    load_codes,
    magnitudes,
    put_roots,
)

SIGNS = SPARE + 72 * VECTOR  # sign bits of a group, 8 values per vector


def build_group(n: int, tiny: float, even: bool, start: Function, fit: Function) -> Function:
    """Return group(m, g), which fits a group of n values and returns a mask of zero groups.

    It replaces the values by their magnitudes, and stores signs, codes and the scale.

    tiny     limit of the largest magnitude below which a group is zero; 0: only exact zeros
    even     True if the number of negative signs must be even
    start    start(m, x, w, top, zero) returns zero and top, possibly changed, and an initial scale
    fit      fit(m, x, w, roots, top, scale): see points.py:fitter
    """

    @fn
    def group(m, g):
        """Return the mask of lanes with a zero group; their indices and signs are 0."""
        x = m + X + n * VECTOR * g
        w, roots = x + W, x + LEVELS
        put_roots(w, roots, n)
        for p in range(n // 8):
            here = 8 * VECTOR * p
            signs = even_magnitudes(x + here, w + here) if even else magnitudes(x + here)
            put(m + SIGNS, p, signs)
        top = highest(x, n)
        zero, top, scale = start(m, x, w, top, top < tiny if tiny > 0.0 else top == 0.0)
        one = v.f32x16(1.0)
        scale = fit(m, x, w, roots, v.select(zero, one, top), scale)
        for p in range(n // 8):
            other = ~load_codes(m + SIGNS, p) & (127 if even else 255)
            signs = v.select(scale < 0.0, other, load_codes(m + SIGNS, p))
            put(m + SIGNS, p, v.select(zero, v.i32x16(0), signs))
        put(m + SCALES, g, v.select(zero, v.f32x16(0.0), v.vabs(scale)))
        return zero

    return group


@fn
def point_index(m, p, zero):
    return v.select(zero, v.i32x16(0), grid_index(m, load_codes(m + CODES, p)))


def of_largest(steps: float) -> Function:
    """Return a `start` function with the initial scale (largest magnitude) / steps."""

    @fn
    def start(m, x, w, top, zero):
        return zero, top, top / steps

    return start


@fn
def put_scales(m, to, groups, fudge):
    """Store the f16 factor of all scales and return its inverse, without `fudge`."""
    top = v.f32x16(0.0)
    for g in range(groups):
        top = v.vmax(load_lanes(m + SCALES, g), top)
    d = top / 31.0
    put_half(m, to, mul(d, v.f32x16(fudge)))
    return ratio(v.f32x16(1.0), d)


@fn
def round_step(m, g, factor):
    return half_steps(load_lanes(m + SCALES, g), factor, 15.0)

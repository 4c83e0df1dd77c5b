"""Search for scales and minima of groups (ggml-quants.c:make_qkx2_quants, make_qkx3_quants)."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quantize.lanes import SPARE, add_steps, load_lanes, mul, put, round_and_clip


@fn
def error_size(diff, absolute):
    return v.vabs(diff) if absolute else mul(diff, diff)


@fn
def bounds_and_sums(x, w, n):
    low, high, s_w = load_lanes(x, 0), load_lanes(x, 0), load_lanes(w, 0)
    s_x = mul(s_w, low)
    for i in range(1, n):
        low, high = v.vmin(load_lanes(x, i), low), v.vmax(load_lanes(x, i), high)
        s_w, s_x = s_w + load_lanes(w, i), s_x + mul(load_lanes(w, i), load_lanes(x, i))
    return v.select(low > 0.0, v.f32x16(0.0), low), high, s_w, s_x


@fn
def sum_errors(x, w, n, levels, scale, offset, absolute):
    total = v.f32x16(0.0)
    for i in range(n):
        diff = (mul(scale, load_lanes(levels, i)) + offset) - load_lanes(x, i)
        total = total + mul(load_lanes(w, i), error_size(diff, absolute))
    return total


@fn
def sums_of_levels(x, w, n, factor, offset, q_max, levels):
    """Store the levels q and return the sums of w * q, w * q * q and w * q * x."""
    s_q, s_qq, s_xq = v.f32x16(0.0), v.f32x16(0.0), v.f32x16(0.0)
    for i in range(n):
        q = round_and_clip(mul(factor, load_lanes(x, i) - offset), 0.0, q_max)
        put(levels, i, q)
        wq = mul(load_lanes(w, i), q)
        s_q, s_qq, s_xq = s_q + wq, s_qq + mul(wq, q), s_xq + mul(wq, load_lanes(x, i))
    return s_q, s_qq, s_xq


@fn
def fit_scale_and_offset(s_w, s_x, s_q, s_qq, s_xq):
    """Return (solved, scale, offset) of the least-squares fit, with offset <= 0."""
    det = mul(s_w, s_qq) - mul(s_q, s_q)
    solved = det > 0.0
    det = v.select(solved, det, v.f32x16(1.0))
    scale = (mul(s_w, s_xq) - mul(s_x, s_q)) / det
    offset = (mul(s_qq, s_x) - mul(s_q, s_xq)) / det
    above = offset > 0.0
    scale = v.select(above, s_xq / v.select(above, s_qq, v.f32x16(1.0)), scale)
    return solved, scale, v.select(above, v.f32x16(0.0), offset)


@fn
def with_minimum(m, x, w, n, q_max, start, step, tries, absolute, levels):
    """Return (scale, minimum) for x = scale * q - minimum, q in 0 .. q_max, and store levels q.

    The search tries tries + 1 factors and refits each. Like in ggml, later tries start from the
    minimum of the best so far. The levels are computed again from the best factor and its start.
    """
    low, high, s_w, s_x = bounds_and_sums(x, w, n)
    flat = high <= low
    high = v.select(flat, low + 1.0, high)
    factor, offset, start_at = v.f32x16(q_max) / (high - low), low, low
    scale = v.f32x16(1.0) / factor
    sums_of_levels(x, w, n, factor, low, q_max, levels)
    least = sum_errors(x, w, n, levels, scale, low, absolute)
    for i in range(tries + 1):
        tried = v.f32x16(add_steps(start, step, i) + v.float32(q_max)) / (high - offset)
        s_q, s_qq, s_xq = sums_of_levels(x, w, n, tried, offset, q_max, m + SPARE)
        solved, scale2, offset2 = fit_scale_and_offset(s_w, s_x, s_q, s_qq, s_xq)
        error = sum_errors(x, w, n, m + SPARE, scale2, offset2, absolute)
        better = solved & (error < least)
        least, factor = v.select(better, error, least), v.select(better, tried, factor)
        start_at = v.select(better, offset, start_at)
        scale, offset = v.select(better, scale2, scale), v.select(better, offset2, offset)
    zero = v.f32x16(0.0)
    for i in range(n):
        q = round_and_clip(mul(factor, load_lanes(x, i) - start_at), 0.0, q_max)
        put(levels, i, v.select(flat, zero, q))
    return v.select(flat, zero, scale), -v.select(flat, low, offset)

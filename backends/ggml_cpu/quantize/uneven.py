"""Search for scales with uneven levels (ggml-quants.c:quantize_row_iq4_nl_impl)."""

from __future__ import annotations

import numpy as np

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.levels import UNEVEN, uneven_levels
from ggml_cpu.kernel import fn
from ggml_cpu.quantize.lanes import add_steps, divide, extreme, is_zero, load_lanes, mul, put

FIRST = float(UNEVEN[0])
LEVELS = np.array(UNEVEN, np.float32).tobytes()


@fn
def level_index(x):
    """Return the index of the level nearest to x, the upper level in a tie (best_index_int8)."""
    index = v.i32x16(0)
    for i in range(15):
        low, high = v.ld_f32(v.table(LEVELS) + 4 * i), v.ld_f32(v.table(LEVELS) + 4 * i + 4)
        index = index + v.select((x - low) < (high - x), v.i32x16(0), v.i32x16(1))
    return index


@fn
def gains(x, w, n, factor):
    """Return the sums of w * q * x and w * q * q, q the level of factor * x."""
    qx, qq = v.f32x16(0.0), v.f32x16(0.0)
    for i in range(n):
        q = uneven_levels(level_index(mul(factor, load_lanes(x, i))))
        wq = mul(load_lanes(w, i), q)
        qx, qq = qx + mul(wq, load_lanes(x, i)), qq + mul(wq, q)
    return qx, qq


@fn
def find_scale(x, w, n):
    """Return the best of 16 scales for n values."""
    top = extreme(x, n)
    zero = is_zero(top)
    top = v.select(zero, v.f32x16(1.0), top)
    qx, qq = gains(x, w, n, v.f32x16(1.0) / (-top / FIRST))
    some = qq > 0.0
    scale = v.select(some, qx / v.select(some, qq, v.f32x16(1.0)), v.f32x16(0.0))
    best = mul(scale, qx)
    for i in range(-7, 8):
        qx, qq = gains(x, w, n, v.f32x16(add_steps(FIRST, 1.0, i)) / top)
        better = (qq > 0.0) & (mul(qx, qx) > mul(best, qq))
        scale = v.select(better, qx / v.select(better, qq, v.f32x16(1.0)), scale)
        best = v.select(better, mul(scale, qx), best)
    return v.select(zero, v.f32x16(0.0), scale)


@fn
def put_levels(x, levels, n, scale):
    factor = divide(v.f32x16(1.0), scale)
    for i in range(n):
        put(levels, i, v.to_f32(level_index(mul(factor, load_lanes(x, i)))))

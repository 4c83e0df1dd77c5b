"""Quantizer of iq1_m (ggml-quants.c:quantize_row_iq1_m_impl).

Indices u8 [32] | u8 [16], two nibbles of three upper index bits and the sign of delta | u16 [4],
four 3-bit scales and four bits of d.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.lanes import (
    SCALES,
    STEPS,
    VECTOR,
    W,
    X,
    load_lanes,
    mul,
    put,
    put_byte,
    put_bytes,
    ratio,
)
from ggml_cpu.quantize.points import grid_index, half_steps, load_codes
from ggml_cpu.quantize.tables import find_tables
from ggml_cpu.quantize.ternary import (
    DELTA,
    LEAST,
    ORDER,
    OTHER_SUM_W,
    OTHER_SUM_X,
    POINTS,
    SORTED_W,
    SORTED_X,
    SUM_W,
    SUM_X,
    gains,
    magnitude,
    on_grid,
    put_point,
    refit_scale,
    sort,
    split_code,
    update_best,
)
from ggml_cpu.quantize.ways import build_square_pair


@fn
def put_sums(m):
    """Store separate prefix sums for the first and second eight values: their deltas may differ."""
    for tile in (SUM_X, SUM_W, OTHER_SUM_X, OTHER_SUM_W):
        put(m + tile, 0, v.f32x16(0.0))
    for i in range(16):
        first = load_codes(m + ORDER, i) < 8
        w = load_lanes(m + SORTED_W, i)
        wx = mul(w, load_lanes(m + SORTED_X, i))
        x0, w0 = load_lanes(m + SUM_X, i), load_lanes(m + SUM_W, i)
        x1, w1 = load_lanes(m + OTHER_SUM_X, i), load_lanes(m + OTHER_SUM_W, i)
        put(m + SUM_X, i + 1, v.select(first, x0 + wx, x0))
        put(m + SUM_W, i + 1, v.select(first, w0 + w, w0))
        put(m + OTHER_SUM_X, i + 1, v.select(first, x1, x1 + wx))
        put(m + OTHER_SUM_W, i + 1, v.select(first, w1, w1 + w))


@fn
def product_sums(m, xs, ws, i, j, delta):
    """Return the sums of w * q * x and w * q * q of eight values with bounds i and j."""
    low, middle, high = delta - 1.0, delta, delta + 1.0
    most, total = v.f32x16(high), load_lanes(m + ws, 16)
    qx = mul(load_lanes(m + xs, 16), most) - (load_lanes(m + xs, i) + load_lanes(m + xs, j))
    qq = mul(mul(total, most), most) + mul(
        load_lanes(m + ws, i), v.f32x16(low * low - middle * middle)
    )
    return qx, qq + mul(load_lanes(m + ws, j), v.f32x16(middle * middle - high * high))


@fn
def best_split(m, top):
    """Return (scale, lower bound, upper bound, chosen).

    Bits of `chosen` mark negative deltas: bit 1 for the first eight values, bit 0 for the second
    eight. It is -1 if no split is valid.
    """
    best, scale = v.f32x16(LEAST), top
    low, high, chosen = v.i32x16(0), v.i32x16(0), v.i32x16(-1)
    for i in range(17):
        for j in range(i, 17):
            for k in range(4):
                delta = v.float32(DELTA) if k < 2 else v.float32(-DELTA)
                other = v.float32(DELTA) if k % 2 == 0 else v.float32(-DELTA)
                qx, qq = product_sums(m, SUM_X, SUM_W, i, j, delta)
                qx1, qq1 = product_sums(m, OTHER_SUM_X, OTHER_SUM_W, i, j, other)
                qx, qq = qx + qx1, qq + qq1
                better, scale, best = update_best(qx, qq, scale, best)
                low, high = v.select(better, v.i32x16(i), low), v.select(better, v.i32x16(j), high)
                chosen = v.select(better, v.i32x16(k), chosen)
    return scale, low, high, chosen


@fn
def choose_delta(chosen, p):
    minus = (chosen & (2 >> p)) != 0
    return v.select(minus, v.f32x16(-DELTA), v.f32x16(DELTA))


@fn
def group(m, g):
    x = m + X + 16 * VECTOR * g
    w, top = x + W, magnitude(x, 16)
    sort(m, x, w, 16)
    put_sums(m)
    scale, low, high, chosen = best_split(m, top)
    none, flipped = (top < 1e-7) | (chosen < 0), scale < 0.0
    chosen = v.select(none, v.i32x16(0), v.select(flipped, 3 - chosen, chosen))
    scale, any_off = v.vabs(scale), scale != scale
    one, qx, qq = v.f32x16(1.0), v.f32x16(0.0), v.f32x16(0.0)
    for p in range(2):
        here, delta = 8 * VECTOR * p, choose_delta(chosen, p)
        code = split_code(m, 8 * p, low, high, flipped)
        code, off = on_grid(m, code, x + here, w + here, scale, delta)
        any_off = any_off | off
        put_point(m, 2 * g + p, code, none)
        qx, qq = gains(x + here, w + here, code, delta, one, qx, qq)
    scale = refit_scale(any_off, qx, qq, scale)
    put(m + SCALES, g, v.select(none, v.f32x16(0.0), scale))
    put(m + STEPS, g, chosen)


@fn
def put_points(m, g, some):
    upper = v.i32x16(0)
    for p in range(2):
        index = grid_index(m, load_codes(m + POINTS, 2 * g + p))
        put_byte(m, 2 * g + p, index)
        minus = some & ((load_codes(m + STEPS, g) & (2 >> p)) != 0)
        upper = upper | (((index >> 8) | v.select(minus, v.i32x16(8), 0)) << (4 * p))
    put_byte(m, 32 + g, upper)


@fn
def put_all(m):
    top = v.f32x16(0.0)
    for g in range(16):
        group(m, g)
        top = v.vmax(load_lanes(m + SCALES, g), top)
    d, some = top / 15.0, top > 0.0
    factor, qx, qq = ratio(v.f32x16(1.0), d), v.f32x16(0.0), v.f32x16(0.0)
    for four in range(4):
        word = v.i32x16(0)
        for i in range(4):
            g = 4 * four + i
            put_points(m, g, some)
            step = half_steps(load_lanes(m + SCALES, g), factor, 7.0)
            word = word | (step << (3 * i))
            x = m + X + 16 * VECTOR * g
            for p in range(2):
                here, delta = 8 * VECTOR * p, choose_delta(load_codes(m + STEPS, g), p)
                times, code = v.to_f32(step * 2 + 1), load_codes(m + POINTS, 2 * g + p)
                qx, qq = gains(x + here, x + W + here, code, delta, times, qx, qq)
        put(m + STEPS + 16 * VECTOR, four, word)
    d = v.select(qq > 0.0, qx / v.select(qq > 0.0, qq, v.f32x16(1.0)), d)
    bits = v.zext_i32(v.f32_to_f16(mul(d, v.f32x16(1.1125))))
    for four in range(4):
        word = load_codes(m + STEPS + 16 * VECTOR, four) | (((bits >> (4 * four)) & 15) << 12)
        put_bytes(m, 48 + 2 * four, 2, v.select(some, word, v.i32x16(0)))


register("iq1_m", *build_square_pair(256, 2.0, put_all), tables=find_tables("iq1", 3))

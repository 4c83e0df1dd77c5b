"""Quantizer of iq1_s (ggml-quants.c:quantize_row_iq1_s_impl).

d f16 | indices u8 [32] | u16 [8], three upper bits of four indices, a scale and the sign of delta.
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
    put_half,
    ratio,
    sum_of_squares,
    weigh,
)
from ggml_cpu.quantize.points import grid_index, half_steps, load_codes
from ggml_cpu.quantize.tables import find_tables
from ggml_cpu.quantize.ternary import (
    DELTA,
    LEAST,
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

WORDS = STEPS + 8 * VECTOR  # upper index bits and sign of delta per group


@fn
def put_sums(m):
    put(m + SUM_X, 0, v.f32x16(0.0))
    put(m + SUM_W, 0, v.f32x16(0.0))
    for i in range(32):
        x, w = load_lanes(m + SORTED_X, i), load_lanes(m + SORTED_W, i)
        put(m + SUM_X, i + 1, load_lanes(m + SUM_X, i) + mul(w, x))
        put(m + SUM_W, i + 1, load_lanes(m + SUM_W, i) + w)


@fn
def three(a, b, c, delta):
    return mul(a, v.f32x16(delta - 1.0)) + mul(b, v.f32x16(delta)) + mul(c, v.f32x16(delta + 1.0))


@fn
def three_squares(a, b, c, delta):
    low, middle, high = v.f32x16(delta - 1.0), v.f32x16(delta), v.f32x16(delta + 1.0)
    return mul(mul(a, low), low) + mul(mul(b, middle), middle) + mul(mul(c, high), high)


@fn
def best_split(m, top):
    """Return (scale, lower bound, upper bound, sign of delta); sign 0 if no split is valid."""
    best, scale = v.f32x16(LEAST), top
    low, high, shift = v.i32x16(0), v.i32x16(0), v.i32x16(0)
    for i in range(33):
        for j in range(i, 33):
            x, w, xj, wj = (
                load_lanes(m + SUM_X, i),
                load_lanes(m + SUM_W, i),
                load_lanes(m + SUM_X, j),
                load_lanes(m + SUM_W, j),
            )
            xs, ws = load_lanes(m + SUM_X, 32) - xj, load_lanes(m + SUM_W, 32) - wj
            for sign in range(1, -2, -2):
                delta = v.float32(DELTA) * v.float32(sign)
                qx, qq = three(x, xj - x, xs, delta), three_squares(w, wj - w, ws, delta)
                better, scale, best = update_best(qx, qq, scale, best)
                low, high = v.select(better, v.i32x16(i), low), v.select(better, v.i32x16(j), high)
                shift = v.select(better, v.i32x16(sign), shift)
    return scale, low, high, shift


@fn
def group(m, g):
    x = m + X + 32 * VECTOR * g
    w, top = x + W, magnitude(x, 32)
    sort(m, x, w, 32)
    put_sums(m)
    scale, low, high, shift = best_split(m, top)
    none, flipped = (top < 1e-12) | (shift == 0), scale < 0.0
    scale, shift = v.vabs(scale), v.select(flipped, -shift, shift)
    delta, any_off = v.to_f32(shift) * DELTA, scale != scale
    one, qx, qq = v.f32x16(1.0), v.f32x16(0.0), v.f32x16(0.0)
    for p in range(4):
        here = 8 * VECTOR * p
        code = split_code(m, 8 * p, low, high, flipped)
        code, off = on_grid(m, code, x + here, w + here, scale, delta)
        any_off = any_off | off
        put_point(m, p, code, none)
        qx, qq = gains(x + here, w + here, code, delta, one, qx, qq)
    scale = refit_scale(any_off, qx, qq, scale)
    put(m + SCALES, g, v.select(none, v.f32x16(0.0), scale))
    word = v.select(none | (shift == 1), v.i32x16(0), v.i32x16(1 << 15))
    for p in range(4):
        index = v.select(none, v.i32x16(0), grid_index(m, load_codes(m + POINTS, p)))
        put_byte(m, 2 + 4 * g + p, index)
        word = word | ((index >> 8) << (3 * p))
    put(m + WORDS, g, word)


@fn
def encode_weighted(m):
    weigh(m + X, m + W, 256, (sum_of_squares(m + X, 256) * 2.0) / 256.0)
    top = v.f32x16(0.0)
    for g in range(8):
        group(m, g)
        top = v.vmax(load_lanes(m + SCALES, g), top)
    d = top / 15.0
    put_half(m, 0, mul(d, v.f32x16(1.125)))
    factor = ratio(v.f32x16(1.0), d)
    for g in range(8):
        step = half_steps(load_lanes(m + SCALES, g), factor, 7.0)
        word = load_codes(m + WORDS, g) | (step << 12)
        put_bytes(m, 34 + 2 * g, 2, v.select(top > 0.0, word, word & 0xFFF))


register("iq1_s", None, encode_weighted, tables=find_tables("iq1", 3))

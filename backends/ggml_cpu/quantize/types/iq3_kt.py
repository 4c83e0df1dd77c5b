"""Quantizer of iq3_kt (iqk_quantize.cpp:quantize_row_iq3_kt_impl of ik_llama.cpp).

Rows begin with d f32. Block: steps u8 [4], nibbles of groups g and g + 4 | u16 [32] | signs
u8 [32], bit g of a byte for group g. Points approximate magnitudes.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import RowSteps, register
from ggml_cpu.quantize.lanes import (
    LEVELS,
    MEMORY,
    STEPS,
    SUMS,
    TABLES,
    VECTOR,
    W,
    X,
    divide,
    load_lanes,
    mul,
    put,
    put_byte,
    put_bytes,
    round_product,
)
from ggml_cpu.quantize.points import load_codes
from ggml_cpu.quantize.shifted import clear, fitted_scale, of_larger
from ggml_cpu.quantize.steps import put_nibbles
from ggml_cpu.quantize.trellis import (
    CHOSEN,
    INDICES,
    TRIED,
    build_point_search,
    group_scale,
    weigh_points,
)
from ggml_cpu.quantize.trellis_points import FIRST, trellis_tables
from ggml_cpu.quantize.trellis_rows import ALL_Q, ALL_W, ALL_X, FOUND, SCALE

MOST = 15.0
search_8 = build_point_search(8)
match, fit, values, add_gains = search_8.match, search_8.fit, search_8.values, search_8.gains


@fn
def put_magnitudes(m, x):
    for i in range(32):
        put(m + LEVELS, i, v.vabs(load_lanes(x, i)))


@fn
def search(m, found, largest):
    set, x = v.ld_i64(m + TABLES), m + LEVELS
    for g in range(8):
        w = m + W + 32 * VECTOR * g
        put_magnitudes(m, m + X + 32 * VECTOR * g)
        top, divisor, zero = group_scale(m, x, 84.0, 123.0)
        scale, best = v.f32x16(0.0), v.f32x16(0.0)
        for i in range(4):
            put(m + CHOSEN, i, v.i32x16(0))
        for k in range(-3, 4):
            tried = top / (divisor + v.float32(8 * k))
            match(m, set, v.i32x16(0), x, w, tried, m + TRIED)
            fitted, score = fit(m, set, x, w, m + TRIED)
            better = score > best
            best, scale = v.select(better, score, best), v.select(better, fitted, scale)
            for i in range(4):
                index = v.select(better, load_codes(m + TRIED, i), load_codes(m + CHOSEN, i))
                put(m + CHOSEN, i, index)
        scale = v.select(zero, v.f32x16(0.0), scale)
        put(found, SCALE + g, scale)
        for i in range(32):
            put(found, ALL_X + 32 * g + i, load_lanes(x, i))
            put(found, ALL_W + 32 * g + i, load_lanes(w, i))
            put(found, ALL_Q + 32 * g + i, values(set, m + CHOSEN, i))
        largest = of_larger(scale, largest)
    return largest


@fn
def gains(m, blocks, factor):
    qx, qq = v.f32x16(0.0), v.f32x16(0.0)
    for b in range(blocks):
        found = m + MEMORY + FOUND * b
        for g in range(8):
            step = round_product(factor, load_lanes(found, SCALE + g), 0.0, MOST)
            for i in range(32 * g, 32 * g + 32):
                q, weight = step * load_lanes(found, ALL_Q + i), load_lanes(found, ALL_W + i)
                qx = qx + mul(mul(weight, load_lanes(found, ALL_X + i)), q)
                qq = qq + mul(mul(weight, q), q)
    return qx, qq


@fn
def start(m, blocks, largest):
    zero, one = largest == 0.0, v.f32x16(1.0)
    top = v.select(zero, one, largest)
    d, best = top / MOST, v.f32x16(0.0)
    for i in range(-9, 10):
        divisor = v.fma(v.f32x16(v.float32(i)), v.f32x16(v.float32(0.2)), v.f32x16(MOST))
        qx, qq = gains(m, blocks, divisor / top)
        better = (qq > 0.0) & (mul(qx, qx) > mul(best, qq))
        d = v.select(better, qx / v.select(better, qq, one), d)
        best = v.select(better, mul(d, qx), best)
    return v.select(zero, v.f32x16(0.0), d)


@fn
def put_block(m, found, d):
    set, factor = v.ld_i64(m + TABLES), divide(v.f32x16(1.0), d)
    qx, qq = load_lanes(m + SUMS, 0), load_lanes(m + SUMS, 1)
    for g in range(8):
        w, to = m + W + 32 * VECTOR * g, m + INDICES + 4 * VECTOR * g
        put_magnitudes(m, m + X + 32 * VECTOR * g)
        step = round_product(factor, load_lanes(found, SCALE + g), 0.0, MOST)
        put(m + STEPS, g, step)
        match(m, set, v.i32x16(0), m + LEVELS, w, mul(d, step), to)
        qx, qq = add_gains(set, m + LEVELS, w, to, step, qx, qq)
    put(m + SUMS, 0, qx)
    put(m + SUMS, 1, qq)
    put_codes(m)
    clear(m, 100, d == 0.0)


@fn
def put_codes(m):
    put_nibbles(m, 0, 4, m + STEPS)
    for i in range(32):
        put_bytes(m, 4 + 2 * i, 2, load_codes(m + INDICES, i))
        signs = v.i32x16(0)
        for g in range(8):
            minus = load_lanes(m + X, 32 * g + i) < 0.0
            signs = signs | v.select(minus, v.i32x16(1 << g), v.i32x16(0))
        put_byte(m, 68 + i, signs)


weights = weigh_points(True)
register(
    "iq3_kt",
    weights.plain,
    weights.weighted,
    rows=RowSteps(search, start, put_block, fitted_scale, 4, FOUND),
    tables=trellis_tables((16, 8, 8, True, FIRST)),
)

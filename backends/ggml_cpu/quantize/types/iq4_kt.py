"""Quantizer of iq4_kt (iqk_quantize.cpp:quantize_row_iq4_kt_impl of ik_llama.cpp).

Rows begin with d f32. Block: u32 [8]: bit 15 of the indices, step plus 64 (7 bits), bits 12 to 14
of 8 indices | lower bytes u8 [64] | bits 8 to 11 u8 [32], of indices i and i + 32.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import RowSteps, register
from ggml_cpu.quantize.lanes import (
    STEPS,
    SUMS,
    TABLES,
    VECTOR,
    W,
    X,
    divide,
    load_integers,
    load_lanes,
    mul,
    put,
    put_byte,
    put_bytes,
    round_product,
)
from ggml_cpu.quantize.points import load_codes
from ggml_cpu.quantize.shifted import SHIFTS, clear, fitted_scale, of_larger
from ggml_cpu.quantize.trellis import INDICES, TRIED, build_point_search, group_scale, weigh_points
from ggml_cpu.quantize.trellis_points import FIRST, trellis_tables

HALF = 1 << 15  # points of a set
search_4 = build_point_search(4)
match, fit, add_gains = search_4.match, search_4.fit, search_4.gains


@fn
def try_scale(m, half, x, w, scale):
    """Return the best scale, and its score, for the points of the lower or upper half."""
    set = v.ld_i64(m + TABLES)
    match(m, set, v.i32x16(half), x, w, scale, m + TRIED)
    if half == 1:
        for i in range(8):
            put(m + TRIED, i, load_codes(m + TRIED, i) + HALF)
    return fit(m, set, x, w, m + TRIED)


@fn
def search(m, found, largest):
    for g in range(8):
        x, w = m + X + 32 * VECTOR * g, m + W + 32 * VECTOR * g
        top, divisor, zero = group_scale(m, x, 90.0, 124.0)
        scale, best, upper = v.f32x16(0.0), v.f32x16(0.0), v.f32x16(0.0)
        for half in range(2):
            if half == 1:
                fitted, score = try_scale(m, 1, x, w, scale)
                scale = v.select(score > best, fitted, scale)
                upper = v.select(score > best, v.f32x16(1.0), upper)
            for k in range(-2, 3):
                for sign in range(2):
                    tried = top / (divisor + v.float32(8 * k))
                    fitted, score = try_scale(m, half, x, w, tried if sign == 0 else -tried)
                    better = score > best
                    best, scale = v.select(better, score, best), v.select(better, fitted, scale)
                    upper = v.select(better, v.f32x16(v.float32(half)), upper)
        scale = v.select(zero, v.f32x16(0.0), scale)
        put(found, g, scale)
        put(found, 8 + g, v.select(zero, v.f32x16(0.0), upper))
        largest = of_larger(scale, largest)
    return largest


@fn
def start(m, blocks, largest):
    return v.select(largest == 0.0, v.f32x16(0.0), -largest / v.float32(64.0))


@fn
def put_block(m, found, d):
    set, factor = v.ld_i64(m + TABLES), divide(v.f32x16(1.0), d)
    qx, qq = load_lanes(m + SUMS, 0), load_lanes(m + SUMS, 1)
    for g in range(8):
        x, w, to = m + X + 32 * VECTOR * g, m + W + 32 * VECTOR * g, m + INDICES + 8 * VECTOR * g
        step, upper = (
            round_product(factor, load_lanes(found, g), -64.0, 63.0),
            load_lanes(found, 8 + g),
        )
        put(m + STEPS, g, step)
        put(m + SHIFTS, g, upper)
        match(m, set, v.to_i32(upper), x, w, mul(d, step), to)
        for i in range(8):
            put(to, i, load_codes(to, i) + v.to_i32(upper) * HALF)
        qx, qq = add_gains(set, x, w, to, step, qx, qq)
    put(m + SUMS, 0, qx)
    put(m + SUMS, 1, qq)
    put_codes(m)
    clear(m, 128, d == 0.0)


@fn
def put_codes(m):
    for g in range(8):
        word = ((load_integers(m + STEPS, g) + 64) << 1) | load_integers(m + SHIFTS, g)
        for i in range(8):
            word = word | (((load_codes(m + INDICES, 8 * g + i) >> 12) & 7) << (8 + 3 * i))
        put_bytes(m, 4 * g, 4, word)
    for i in range(64):
        put_byte(m, 32 + i, load_codes(m + INDICES, i))
    for i in range(32):
        low = (load_codes(m + INDICES, i) >> 8) & 15
        put_byte(m, 96 + i, low | (((load_codes(m + INDICES, i + 32) >> 8) & 15) << 4))


weights = weigh_points(False)
register(
    "iq4_kt",
    weights.plain,
    weights.weighted,
    rows=RowSteps(search, start, put_block, fitted_scale),
    tables=trellis_tables((15, 4, 6, False, FIRST), (15, 4, 6, False, FIRST + HALF)),
)

"""Rows of trellis types of 1 and 2 bits: a scale, and uneven levels as steps of groups of 32 values
(iqk_quantize.cpp:quantize_row_iq1_kt_impl, quantize_row_iq2_kt_impl of ik_llama.cpp)."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import Function, fn
from ggml_cpu.quantize.format import RowSteps
from ggml_cpu.quantize.lanes import (
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
)
from ggml_cpu.quantize.points import load_codes
from ggml_cpu.quantize.shifted import build_lookup, clear, fitted_scale, of_larger, shifted_table
from ggml_cpu.quantize.trellis import CHOSEN, INDICES, TRIED, build_point_search, group_scale

# What is found in a block: scales, indices of points, values, weights and points.
SCALE, INDEX, ALL_X, ALL_W, ALL_Q = 0, 8, 40, 296, 552
FOUND = 808 * VECTOR

LEVELS, _, FIRST = shifted_table(4)
find_level, find_index = build_lookup(4)
search_8 = build_point_search(8)
match, fit, values, add_gains = search_8.match, search_8.fit, search_8.values, search_8.gains


@fn
def try_both(m, x, w, scale):
    """Return the better scale of `scale` and -scale, and its score; store indices in TRIED."""
    set, none = v.ld_i64(m + TABLES), v.i32x16(0)
    match(m, set, none, x, w, scale, m + TRIED)
    plus, plus_score = fit(m, set, x, w, m + TRIED)
    match(m, set, none, x, w, -scale, m + INDICES)
    minus, minus_score = fit(m, set, x, w, m + INDICES)
    better = plus_score > minus_score
    for i in range(4):
        put(m + TRIED, i, v.select(better, load_codes(m + TRIED, i), load_codes(m + INDICES, i)))
    return v.select(better, plus, minus), v.select(better, plus_score, minus_score)


def quantize_trellis(twice: bool, fudge: float, put_codes: Function, size: int) -> RowSteps:
    """Return the steps of a type.

    twice      True if a second divisor of a group's largest magnitude is tried
    put_codes  put_codes(m): store a block from the tiles STEPS (indices of levels) and INDICES
    """

    @fn
    def search(m, found, largest):
        set = v.ld_i64(m + TABLES)
        for g in range(8):
            x, w = m + X + 32 * VECTOR * g, m + W + 32 * VECTOR * g
            top, divisor, zero = group_scale(m, x, 90.0, 124.0)
            scale, best = try_both(m, x, w, top / divisor)
            for i in range(4):
                put(m + CHOSEN, i, load_codes(m + TRIED, i))
            if twice:
                other, score = try_both(m, x, w, top / (divisor - 8.0))
                better = score > best
                scale = v.select(better, other, scale)
                for i in range(4):
                    index = v.select(better, load_codes(m + TRIED, i), load_codes(m + CHOSEN, i))
                    put(m + CHOSEN, i, index)
            scale = v.select(zero, v.f32x16(0.0), scale)
            for i in range(4):
                index = v.select(zero, v.i32x16(0), load_codes(m + CHOSEN, i))
                put(m + CHOSEN, i, index)
                put(found, INDEX + 4 * g + i, index)
            put(found, SCALE + g, scale)
            for i in range(32):
                put(found, ALL_X + 32 * g + i, load_lanes(x, i))
                put(found, ALL_W + 32 * g + i, load_lanes(w, i))
                put(found, ALL_Q + 32 * g + i, values(set, m + CHOSEN, i))
            largest = of_larger(scale, largest)
        return largest

    @fn
    def gains(m, blocks, factor):
        qx, qq, levels = v.f32x16(0.0), v.f32x16(0.0), v.table(LEVELS)
        for b in range(blocks):
            found = m + MEMORY + FOUND * b
            for g in range(8):
                level = find_level(mul(factor, load_lanes(found, SCALE + g)), levels)
                for i in range(32 * g, 32 * g + 32):
                    q, weight = level * load_lanes(found, ALL_Q + i), load_lanes(found, ALL_W + i)
                    qx = v.fma(mul(weight, load_lanes(found, ALL_X + i)), q, qx)
                    qq = v.fma(mul(weight, q), q, qq)
        return qx, qq

    @fn
    def start(m, blocks, largest):
        zero, one = largest == 0.0, v.f32x16(1.0)
        top = v.select(zero, one, largest)
        d, best = top / v.float32(FIRST), v.f32x16(0.0)
        for i in range(-9, 10):
            qx, qq = gains(m, blocks, v.f32x16(v.float32(i) + v.float32(FIRST)) / top)
            better = (qq > 0.0) & (mul(qx, qx) > mul(best, qq))
            d = v.select(better, qx / v.select(better, qq, one), d)
            best = v.select(better, mul(d, qx), best)
        return v.select(zero, v.f32x16(0.0), d)

    @fn
    def loss(set, x, w, indices, scale):
        total = v.f32x16(0.0)
        for i in range(32):
            diff = v.fma(-scale, values(set, indices, i), load_lanes(x, i))
            total = v.fma(mul(load_lanes(w, i), diff), diff, total)
        return total

    @fn
    def put_block(m, found, d):
        set, levels, factor = v.ld_i64(m + TABLES), v.table(LEVELS), divide(v.f32x16(1.0), d)
        qx, qq = load_lanes(m + SUMS, 0), load_lanes(m + SUMS, 1)
        for g in range(8):
            x, w, to = (
                m + X + 32 * VECTOR * g,
                m + W + 32 * VECTOR * g,
                m + INDICES + 4 * VECTOR * g,
            )
            scaled = mul(factor, load_lanes(found, SCALE + g))
            step = find_level(scaled, levels)
            put(m + STEPS, g, find_index(scaled, levels))
            before = found + VECTOR * (INDEX + 4 * g)
            match(m, set, v.i32x16(0), x, w, mul(d, step), to)
            keep = loss(set, x, w, before, mul(d, step)) < loss(set, x, w, to, mul(d, step))
            for i in range(4):
                put(to, i, v.select(keep, load_codes(before, i), load_codes(to, i)))
            qx, qq = add_gains(set, x, w, to, step, qx, qq)
        put(m + SUMS, 0, qx)
        put(m + SUMS, 1, qq)
        put_codes(m)
        clear(m, size, d == 0.0)

    @fn
    def finish(m, d):
        return fitted_scale(m, d) * v.float32(fudge)

    return RowSteps(search, start, put_block, finish, 4, FOUND)

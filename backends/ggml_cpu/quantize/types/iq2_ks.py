"""Quantizer of iq2_ks (iqk_quantize.cpp:quantize_row_iq2_ks_fast_impl of ik_llama.cpp).

Rows begin with d f16. Block: shifts u8, fifth bits of codes u8 | lower four bits of codes u8 [4] |
u8 [64].
"""

from __future__ import annotations

import numpy as np

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.ik_levels import IQ2
from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import RowSteps, register
from ggml_cpu.quantize.lanes import (
    LEVELS,
    MEMORY,
    SPARE,
    STEPS,
    SUMS,
    VECTOR,
    W,
    X,
    extreme,
    load_integers,
    load_lanes,
    mul,
    put,
    put_byte,
    round_and_clip,
    sum_lanes,
)
from ggml_cpu.quantize.parts import add_part, clear_parts, sum_parts
from ggml_cpu.quantize.shifted import SHIFTS, clear, put_shift_bits, weigh_groups
from ggml_cpu.quantize.steps import put_quarters

QX, QQ = SPARE, SPARE + 8 * VECTOR
OTHER = SPARE + 16 * VECTOR  # tile: indices of another step
SUM_X, SUM_Q = SUMS, SUMS + 8 * VECTOR  # sums of a row
SCALE, SHIFT, WEIGHT = 0, 8, 16  # results of a block: first vectors of eight groups
FOUND = 24 * VECTOR
TABLE = np.array(IQ2, np.float32).tobytes()
MORE = 5.0  # of shifted levels
TINY = 1e-14


@fn
def nearest_level(x, scale, more):
    """Return index and level of the least squared distance from scale * level; first of a tie."""
    level = more + v.ld_f32(v.table(TABLE))
    diff = x - mul(scale, level)
    least, index = mul(diff, diff), v.f32x16(0.0)
    for j in range(1, 4):
        other = more + v.ld_f32(v.table(TABLE) + 4 * j)
        diff = x - mul(scale, other)
        square = mul(diff, diff)
        less = square < least
        least, index = v.select(less, square, least), v.select(less, v.f32x16(v.float32(j)), index)
        level = v.select(less, other, level)
    return index, level


@fn
def gains(m, x, w, scale, more):
    clear_parts(m + QX)
    clear_parts(m + QQ)
    for i in range(32):
        _, q = nearest_level(load_lanes(x, i), scale, more)
        wq = mul(load_lanes(w, i), q)
        add_part(m + QX, i, wq, load_lanes(x, i))
        add_part(m + QQ, i, wq, q)
    return sum_parts(m + QX), sum_parts(m + QQ)


@fn
def fit_either(m, x, w, scale, more):
    """Return the fitted scale and its gain for levels of `scale` or -scale; 0 without one."""
    qx, qq = gains(m, x, w, scale, more)
    some = qq > 0.0
    fitted = v.select(some, qx / v.select(some, qq, v.f32x16(1.0)), v.f32x16(0.0))
    gain = mul(qx, fitted)
    qx, qq = gains(m, x, w, -scale, more)
    better = (qq > 0.0) & (mul(qx, qx) > mul(gain, qq))
    fitted = v.select(better, qx / v.select(better, qq, v.f32x16(1.0)), fitted)
    return fitted, v.select(better, mul(qx, fitted), gain)


@fn
def find(m, x, w):
    top, none = extreme(x, 32), v.f32x16(0.0)
    zero = v.vabs(top) < TINY
    top = v.select(zero, v.f32x16(1.0), top)
    scale, best = fit_either(m, x, w, top / (v.ld_f32(v.table(TABLE) + 12) + MORE), none)
    shift = none
    for k in range(2):
        more = v.f32x16(v.float32(k) * MORE)
        for i in range(-13, 14):
            fitted, gain = fit_either(
                m, x, w, top / (more + v.ld_f32(v.table(TABLE)) + v.float32(i) * 0.5), more
            )
            better = gain > best
            scale, best = v.select(better, fitted, scale), v.select(better, gain, best)
            shift = v.select(better, v.f32x16(v.float32(k)), shift)
    return v.select(zero, none, scale), v.select(zero, none, shift)


@fn
def search(m, found, largest):
    for g in range(8):
        x, w = m + X + 32 * VECTOR * g, m + W + 32 * VECTOR * g
        scale, shift = find(m, x, w)
        put(found, SCALE + g, scale)
        put(found, SHIFT + g, shift)
        put(found, WEIGHT + g, sum_lanes(w, 32))
        largest = v.select(v.vabs(scale) > v.vabs(largest), scale, largest)
    return largest


@fn
def fit_scales(m, blocks, factor):
    """Return the sums of w * q * scale and w * q * q, q the steps of a row's scales."""
    qx, qq = v.f32x16(0.0), v.f32x16(0.0)
    for b in range(blocks):
        found = m + MEMORY + FOUND * b
        for g in range(8):
            scale, weight = load_lanes(found, SCALE + g), load_lanes(found, WEIGHT + g)
            q = round_and_clip(mul(factor, scale), -16.0, 15.0)
            qx = v.fma(mul(weight, scale), q, qx)
            qq = v.fma(mul(weight, q), q, qq)
    return qx, qq


@fn
def start(m, blocks, largest):
    """Return the scale of the row; SUMS + 15 keeps the factor of its steps."""
    zero = largest == 0.0
    top = v.select(zero, v.f32x16(1.0), largest)
    factor = v.f32x16(-16.0) / top
    qx, qq = fit_scales(m, blocks, factor)
    d = v.select(qq == 0.0, v.f32x16(0.0), qx / v.select(qq == 0.0, v.f32x16(1.0), qq))
    best = mul(d, qx)
    for i in range(-9, 10):
        if i != 0:
            tried = -v.fma(v.f32x16(v.float32(0.1)), v.float32(i), 16.0) / top
            qx, qq = fit_scales(m, blocks, tried)
            better = (qq > 0.0) & (mul(qx, qx) > mul(best, qq))
            d = v.select(better, qx / v.select(better, qq, v.f32x16(1.0)), d)
            best = v.select(better, mul(d, qx), best)
            factor = v.select(better, tried, factor)
    put(m + OTHER, 32, factor)
    return v.select(zero, v.f32x16(0.0), d)


@fn
def put_levels(m, x, w, scale, more, to):
    """Store the indices of the levels and return the weighted sum of squared errors."""
    clear_parts(m + QX)
    for i in range(32):
        index, level = nearest_level(load_lanes(x, i), scale, more)
        put(to, i, index)
        diff = v.fma(-scale, level, load_lanes(x, i))
        add_part(m + QX, i, mul(load_lanes(w, i), diff), diff)
    return sum_parts(m + QX)


@fn
def put_block(m, found, d):
    factor = load_lanes(m + OTHER, 32)
    for g in range(8):
        at = 32 * VECTOR * g
        x, w, to = m + X + at, m + W + at, m + LEVELS + at
        scale, shift = load_lanes(found, SCALE + g), load_lanes(found, SHIFT + g)
        step, more = round_and_clip(mul(factor, scale), -16.0, 15.0), shift * MORE
        first = put_levels(m, x, w, mul(d, step), more, to)
        down = (step > -16.0) & (mul(d, step) > scale)
        up = (step < -1.0) & (mul(d, step) < scale)
        other = step + v.select(down, v.f32x16(-1.0), v.f32x16(1.0))
        second = put_levels(m, x, w, mul(d, other), more, m + OTHER)
        better = (down | up) & (second < first)
        step = v.select(better, other, step)
        put(m + STEPS, g, step)
        put(m + SHIFTS, g, shift)
        for i in range(32):
            index = v.select(better, load_lanes(m + OTHER, i), load_lanes(to, i))
            put(to, i, index)
            level = more + v.ld_f32(v.table(TABLE))
            for j in range(1, 4):
                level = v.select(
                    index == v.float32(j), more + v.ld_f32(v.table(TABLE) + 4 * j), level
                )
            q = step * level
            wq = mul(load_lanes(w, i), q)
            add_part(m + SUM_X, i, wq, load_lanes(x, i))
            add_part(m + SUM_Q, i, wq, q)
    put_codes(m)
    clear(m, 70, d == 0.0)


@fn
def put_codes(m):
    put_shift_bits(m, 0, 8)
    high = v.i32x16(0)
    for g in range(8):
        high = high | (((load_integers(m + STEPS, g) + 16) >> 4) << g)
    put_byte(m, 1, high)
    for k in range(4):
        low, high = load_integers(m + STEPS, 2 * k) + 16, load_integers(m + STEPS, 2 * k + 1) + 16
        put_byte(m, 2 + k, (low & 15) | ((high & 15) << 4))
    put_quarters(m, 6)


@fn
def finish(m, d):
    qx, qq = sum_parts(m + SUM_X), sum_parts(m + SUM_Q)
    some = (d != 0.0) & (qq > 0.0)
    return v.select(some, qx / v.select(some, qq, v.f32x16(1.0)), d)


weights = weigh_groups(32, 1.5, 0.25)
rows = RowSteps(search, start, put_block, finish, 2, FOUND)
register("iq2_ks", weights.plain, weights.weighted, rows=rows)

"""Quantizer of iq2_k (iqk_quantize.cpp:quantize_row_iq2_k_impl of ik_llama.cpp).

d f16 | shifts u16 | codes u8 [8] | u8 [64]. All ways to divide the sorted values of a group among
the four levels are tried.
"""

from __future__ import annotations

from dataclasses import replace

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.ik_levels import IQ2
from ggml_cpu.blocks.search import nearest
from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.lanes import (
    SCALES,
    SPARE,
    STEPS,
    SUMS,
    VECTOR,
    W,
    add_steps,
    extreme,
    load_integers,
    load_lanes,
    mul,
    put,
    put_byte,
    sum_lanes,
)
from ggml_cpu.quantize.shifted import (
    ZERO,
    ScaleSteps,
    build_search,
    put_shift_bits,
    quantize_blocks,
    weigh_groups,
)
from ggml_cpu.quantize.steps import put_quarters

SORTED, WEIGHTS, SUM_X, SUM_W = (SPARE + 32 * VECTOR * i for i in range(4))
SHIFT = 5.0
A, B, C, D = (float(level) for level in IQ2)


@fn
def sort_values(m, x, w):
    """Store the values in order, with their weights, and the sums of all values before each."""
    for i in range(16):
        put(m + SORTED, i, load_lanes(x, i))
        put(m + WEIGHTS, i, load_lanes(w, i))
    for last in range(15, 0, -1):
        for i in range(last):
            a, b = load_lanes(m + SORTED, i), load_lanes(m + SORTED, i + 1)
            p, q = load_lanes(m + WEIGHTS, i), load_lanes(m + WEIGHTS, i + 1)
            swap = a > b
            put(m + SORTED, i, v.select(swap, b, a))
            put(m + SORTED, i + 1, v.select(swap, a, b))
            put(m + WEIGHTS, i, v.select(swap, q, p))
            put(m + WEIGHTS, i + 1, v.select(swap, p, q))
    sum_x, sum_w = v.f32x16(0.0), v.f32x16(0.0)
    put(m + SUM_X, 0, sum_x)
    put(m + SUM_W, 0, sum_w)
    for i in range(16):
        weight = load_lanes(m + WEIGHTS, i)
        sum_w = sum_w + weight
        sum_x = v.fma(weight, load_lanes(m + SORTED, i), sum_x)
        put(m + SUM_X, i + 1, sum_x)
        put(m + SUM_W, i + 1, sum_w)


@fn
def gains(x, w, a, b, c, d):
    """Return the sums of w * q * x and w * q * q over four parts, each with its level."""
    qx = v.fma(x[0], v.float32(a), mul(x[1], v.f32x16(b)))
    qx = v.fma(x[3], v.float32(d), v.fma(x[2], v.float32(c), qx))
    last = mul(mul(w[1], v.f32x16(b)), v.f32x16(b))
    qq = v.fma(mul(w[0], v.f32x16(a)), v.float32(a), last)
    qq = v.fma(mul(w[2], v.f32x16(c)), v.float32(c), qq)
    return qx, v.fma(mul(w[3], v.f32x16(d)), v.float32(d), qq)


@fn
def improve(found, k, qx, qq):
    """Return found (scale, best, shift), replaced in lanes with a better gain."""
    scale, best, shift = found
    better = (qq > 0.0) & (mul(qx, qx) > mul(best, qq))
    scale = v.select(better, qx / qq, scale)
    best = v.select(better, mul(scale, qx), best)
    return scale, best, v.select(better, v.f32x16(k), shift)


@fn
def find(m, x, w):
    zero, none = v.vabs(extreme(x, 16)) < ZERO, v.f32x16(0.0)
    sort_values(m, x, w)
    found = none, none, none
    for first in range(16):
        for second in range(first, 16):
            for third in range(second, 16):
                parts = divide_sums(m + SUM_X, first, second, third)
                weights = divide_sums(m + SUM_W, first, second, third)
                qx, qq = gains(parts, weights, A, B, C, D)
                found = improve(found, 0.0, qx, qq)
                qx, qq = gains(parts, weights, A + SHIFT, B + SHIFT, C + SHIFT, D + SHIFT)
                found = improve(found, 1.0, qx, qq)
                qx, qq = gains(parts, weights, D, C, B, A)
                found = improve(found, 0.0, qx, qq)
                qx, qq = gains(parts, weights, D + SHIFT, C + SHIFT, B + SHIFT, A + SHIFT)
                found = improve(found, 1.0, qx, qq)
    return v.select(zero, none, found[0]), v.select(zero, none, found[2])


@fn
def divide_sums(sums, first, second, third):
    one, two, three = load_lanes(sums, first), load_lanes(sums, second), load_lanes(sums, third)
    last = load_lanes(sums, 16) - three
    return one - load_lanes(sums, 0), two - one, three - two, last


@fn
def fit(m, factor):
    """Return the sums of w * q * scale and w * q * q, q the step of a scale."""
    qx, qq = v.f32x16(0.0), v.f32x16(0.0)
    for g in range(16):
        scale, weight = load_lanes(m + SCALES, g), load_lanes(m + SUMS, g)
        q = v.vmin(v.vmax(nearest(mul(factor, scale)), -8.0), 7.0)
        qx = v.fma(mul(weight, scale), q, qx)
        qq = v.fma(mul(weight, q), q, qq)
    return qx, qq


@fn
def start(m):
    for g in range(16):
        put(m + SUMS, g, sum_lanes(m + W + 16 * VECTOR * g, 16))
    top = extreme(m + SCALES, 16)
    zero = top == 0.0
    top = v.select(zero, v.f32x16(1.0), top)
    qx, qq = fit(m, v.f32x16(-8.0) / top)
    d = v.select(qq == 0.0, v.f32x16(0.0), qx / qq)
    best = mul(d, qx)
    for i in range(-9, 10):
        if i != 0:
            qx, qq = fit(m, v.f32x16(-add_steps(8.0, 0.1, i)) / top)
            better = (qq > 0.0) & (mul(qx, qx) > mul(best, qq))
            d = v.select(better, qx / qq, d)
            best = v.select(better, mul(d, qx), best)
    return v.select(zero, v.f32x16(0.0), d)


@fn
def round(factor, scale):
    return v.vmin(v.vmax(nearest(mul(factor, scale)), -8.0), 7.0)


@fn
def finish(d):
    return d * v.float32(1.03)


@fn
def put_block(m):
    put_shift_bits(m, 2, 16)
    for k in range(8):
        low, high = load_integers(m + STEPS, 2 * k) + 8, load_integers(m + STEPS, 2 * k + 1) + 8
        put_byte(m, 4 + k, low | (high << 4))
    put_quarters(m, 12)


SEARCH = replace(build_search(2, 16, 0, True), find=find)
STEP = ScaleSteps(start, round, finish)
register("iq2_k", *quantize_blocks(SEARCH, weigh_groups(16, 1.5, 0.25), STEP, put_block, 76))

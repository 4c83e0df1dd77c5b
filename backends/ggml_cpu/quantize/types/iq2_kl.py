"""Quantizer of iq2_kl (iqk_quantize.cpp:quantize_row_iq2_kl_impl of ik_llama.cpp).

Rows begin with d f16. Block: upper two bits of codes u16 | lower four bits of codes u8 [4] | lower
four bits of the indices of pairs u8 [4][16] | fifth bits u8 [16].
"""

from __future__ import annotations

import numpy as np

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.ik_levels import IQ3
from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import RowSteps, register
from ggml_cpu.quantize.lanes import (
    LEVELS,
    STEPS,
    SUMS,
    VECTOR,
    W,
    X,
    divide,
    extreme,
    load_integers,
    load_lanes,
    mul,
    put,
    put_byte,
    put_bytes,
    round_and_clip,
)
from ggml_cpu.quantize.shifted import (
    ZERO,
    build_lookup,
    clear,
    fitted_scale,
    of_larger,
    shifted_table,
    weigh_groups,
)
from ggml_cpu.quants.iq2_kl import BYTES as POINTS

LEVEL_TABLE, _row, FIRST = shifted_table(3)
_, find_index = build_lookup(3)
# Points near each pair of levels that is none, nearest first.
NEAR = """
2 0 6 11 7 3 8 15, 0 2 3 6 7 1 8 4, 0 1 3 4 8 7 9 6, 1 0 3 4 8 9 7 10, 1 4 5 10 9 3 8 0,
5 1 4 10 9 14 8 3, 6 2 7 0 3 11 8 15, 3 7 0 6 8 4 12 9, 3 4 8 9 1 7 12 10, 4 10 5 9 1 8 13 14,
11 2 6 7 20 15 25 21, 8 7 3 12 9 16 17 13, 14 5 10 19 9 13 4 18, 6 15 7 11 20 21 16 2,
15 7 16 6 21 12 17 22, 12 16 17 8 15 7 13 22, 19 10 13 18 14 9 12 24, 11 20 25 6 15 2 21 7,
20 15 21 6 11 7 16 26, 14 19 29 10 28 18 13 24, 25 11 20 21 15 6 26 30, 19 24 28 18 29 23 13 17,
29 19 14 28 24 18 10 13, 20 26 21 25 30 15 22 16, 27 26 22 23 21 30 16 24, 27 24 28 31 23 18 22 17,
25 30 20 26 21 11 15 22, 30 26 25 20 21 27 22 15, 30 27 31 26 22 23 21 24, 31 27 30 26 28 23 22 24,
31 28 29 27 24 23 19 18, 29 28 31 24 19 27 14 18"""
TRIES = 5
MOST = 3.4028234663852886e38


def _candidates() -> bytes:
    """Return the indices (i32 [64][8]) of the points to compare for each pair of levels.

    ik_llama.cpp numbers the points, and the lists of the other pairs, in the order of the pairs.
    """
    points = {tuple(pair): i for i, pair in enumerate(POINTS.reshape(32, 2).tolist())}
    lists = iter([[int(i) for i in near.split()] for near in NEAR.split(",")])
    table = []
    for first in IQ3:
        for second in IQ3:
            found = points.get((first, second))
            table.append(next(lists) if found is None else [found] * 8)
    return np.array(table, np.int32).tobytes()


CANDIDATES = _candidates()
FIRSTS, SECONDS = (POINTS.reshape(32, 2)[:, i].astype(np.float32).tobytes() for i in range(2))


@fn
def nearest_point(factor, x, y, wx, wy):
    """Return index, first and second value of the point near factor * (x, y)."""
    levels = v.table(LEVEL_TABLE)
    sx, sy = mul(factor, x), mul(factor, y)
    pair = v.to_i32(find_index(sx, levels)) * 8 + v.to_i32(find_index(sy, levels))
    least = v.f32x16(MOST)
    index, first, second = v.i32x16(0), v.f32x16(0.0), v.f32x16(0.0)
    for k in range(8):
        i = v.i32_gather(v.table(CANDIDATES) + 4 * k, pair * 8)
        p, q = v.f32_gather(v.table(FIRSTS), i), v.f32_gather(v.table(SECONDS), i)
        dx, dy = p - sx, q - sy
        score = v.fma(mul(wx, dx), dx, mul(mul(wy, dy), dy))
        less = score < least
        least, index = v.select(less, score, least), v.select(less, i, index)
        first, second = v.select(less, p, first), v.select(less, q, second)
    return index, first, second


@fn
def add_gains(x, y, wx, wy, p, q, qx, qq):
    px, py = mul(wx, p), mul(wy, q)
    return qx + v.fma(px, x, mul(py, y)), qq + v.fma(px, p, mul(py, q))


@fn
def load_pair(x, w, i):
    return load_lanes(x, i), load_lanes(x, i + 1), load_lanes(w, i), load_lanes(w, i + 1)


@fn
def gains(x, w, factor):
    qx, qq = v.f32x16(0.0), v.f32x16(0.0)
    for i in range(0, 32, 2):
        a, b, wa, wb = load_pair(x, w, i)
        _, p, q = nearest_point(factor, a, b, wa, wb)
        qx, qq = add_gains(a, b, wa, wb, p, q, qx, qq)
    return qx, qq


@fn
def find(x, w):
    top = extreme(x, 32)
    zero = v.vabs(top) < ZERO
    top = v.select(zero, v.f32x16(1.0), top)
    factor = v.f32x16(1.0) / (-top / FIRST)
    qx, qq = gains(x, w, factor)
    scale = qx / qq
    best = mul(scale, qx)
    for i in range(-TRIES - 1, TRIES + 1):
        for sign in range(2):
            if i >= -TRIES:
                factor = v.f32x16(v.float32(i) + v.float32(FIRST)) / top
            if i >= -TRIES or sign == 1:
                qx, qq = gains(x, w, factor if sign == 0 else -factor)
                better = (qq > 0.0) & (mul(qx, qx) > mul(best, qq))
                scale = v.select(better, qx / v.select(better, qq, v.f32x16(1.0)), scale)
                best = v.select(better, mul(scale, qx), best)
    return v.select(zero, v.f32x16(0.0), scale)


@fn
def search(m, found, largest):
    for g in range(8):
        scale = find(m + X + 32 * VECTOR * g, m + W + 32 * VECTOR * g)
        put(found, g, scale)
        largest = of_larger(scale, largest)
    return largest


@fn
def start(m, blocks, largest):
    return v.select(largest == 0.0, v.f32x16(0.0), -largest / v.float32(32.0))


@fn
def error(x, w, scale):
    """Return the weighted sum of squared errors of points with a scale."""
    factor, total = divide(v.f32x16(1.0), scale), v.f32x16(0.0)
    for i in range(0, 32, 2):
        a, b, wa, wb = load_pair(x, w, i)
        _, p, q = nearest_point(factor, a, b, wa, wb)
        dx, dy = v.fma(scale, p, -a), v.fma(scale, q, -b)
        total = total + v.fma(mul(wa, dx), dx, mul(mul(wb, dy), dy))
    return total


@fn
def put_block(m, found, d):
    factor, qx, qq = divide(v.f32x16(1.0), d), load_lanes(m + SUMS, 0), load_lanes(m + SUMS, 1)
    for g in range(8):
        x, w, to = m + X + 32 * VECTOR * g, m + W + 32 * VECTOR * g, m + LEVELS + 16 * VECTOR * g
        middle = round_and_clip(mul(factor, load_lanes(found, g)), -32.0, 31.0)
        step, least = middle, v.f32x16(MOST)
        for k in range(-1, 2):
            tried = middle + v.float32(k)
            loss = error(x, w, mul(d, tried))
            less = (loss < least) & (tried >= -32.0) & (tried <= 31.0)
            step, least = v.select(less, tried, step), v.select(less, loss, least)
        put(m + STEPS, g, step)
        inverse = divide(v.f32x16(1.0), mul(d, step))
        for i in range(0, 32, 2):
            a, b, wa, wb = load_pair(x, w, i)
            index, p, q = nearest_point(inverse, a, b, wa, wb)
            put(to, i // 2, v.select(step == 0.0, v.f32x16(0.0), v.to_f32(index)))
            qx, qq = add_gains(a, b, wa, wb, step * p, step * q, qx, qq)
    put(m + SUMS, 0, qx)
    put(m + SUMS, 1, qq)
    put_codes(m)
    clear(m, 86, d == 0.0)


@fn
def put_codes(m):
    high = v.i32x16(0)
    for g in range(8):
        high = high | (((load_integers(m + STEPS, g) + 32) >> 4) << (2 * g))
    put_bytes(m, 0, 2, high)
    for k in range(4):
        low = (load_integers(m + STEPS, k) + 32) & 15
        put_byte(m, 2 + k, low | (((load_integers(m + STEPS, k + 4) + 32) & 15) << 4))
    for i in range(16):
        bits = v.i32x16(0)
        for g in range(8):
            bits = bits | ((load_integers(m + LEVELS, 16 * g + i) >> 4) << g)
        put_byte(m, 70 + i, bits)
        for k in range(4):
            low = load_integers(m + LEVELS, 32 * k + i) & 15
            put_byte(
                m, 6 + 16 * k + i, low | ((load_integers(m + LEVELS, 32 * k + 16 + i) & 15) << 4)
            )


@fn
def finish(m, d):
    return fitted_scale(m, d) * v.float32(1.025)


@fn
def weigh_plain(m):
    for i in range(256):
        put(m + W, i, v.vabs(load_lanes(m + X, i)))


register(
    "iq2_kl",
    weigh_plain,
    weigh_groups(32, 2.25, 0.0).weighted,
    rows=RowSteps(search, start, put_block, finish, 2),
)

"""Searches of the iqN_kt types: groups of 4 or 8 values become points (see trellis_points.py).

Weights and scores follow ik_llama.cpp's QuantizerIQKT.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import Function, fn
from ggml_cpu.quantize.lanes import (
    LANES,
    SIGMA,
    SPARE,
    VECTOR,
    W,
    X,
    divide,
    load_lanes,
    mul,
    put,
    sum_of_squares,
)
from ggml_cpu.quantize.parts import add_part, clear_parts, sum_parts
from ggml_cpu.quantize.points import LANE_NUMBERS, load_codes
from ggml_cpu.quantize.shifted import GroupWeights

QX, QQ = SPARE, SPARE + 8 * VECTOR
CLUSTER, POINT, SCALED = SPARE + 16 * VECTOR, SPARE + 17 * VECTOR, SPARE + 18 * VECTOR
TRIED, CHOSEN = SPARE + 32 * VECTOR, SPARE + 40 * VECTOR  # tiles: indices of a group of 32 values
INDICES = SPARE + 64 * VECTOR  # tile: indices of a block
SET = 48  # bytes of the addresses of a set of points
FAR = 3.4028234663852886e38
SMALL = float(np.float32(1e-14))
LEAST = float(np.float32(1e-4))  # weight of zeros


def weigh_points(fused: bool) -> GroupWeights:
    """Return the weights of values; `fused`: the compiler fused the squares with their sums."""

    @fn
    def weigh_plain(m):
        total = sum_of_squares(m + X, 256)
        base = total * (0.25 * 2.0 / 256.0)
        for i in range(256):
            x = load_lanes(m + X, i)
            put(m + W, i, v.select(total < SMALL * 256.0, v.f32x16(LEAST), v.fma(x, x, base)))

    @fn
    def weigh_importance(m):
        total = sum_of_squares(m + X, 256)
        sigma, zero = total * (2.0 / 256.0), total < SMALL * 256.0
        for g in range(8):
            x, w = m + X + 32 * VECTOR * g, m + W + 32 * VECTOR * g
            ww, xx, wx = v.f32x16(0.0), v.f32x16(0.0), v.f32x16(0.0)
            for i in range(32):
                a = load_lanes(x, i)
                square = mul(a, a)
                sum = v.fma(a, a, sigma) if fused else square + sigma
                b = mul(load_lanes(w, i), v.vsqrt(sum))
                put(w, i, b)
                ww, wx = v.fma(b, b, ww), v.fma(b, v.vabs(a), wx)
                xx = v.fma(a, a, xx) if fused else xx + square
            none = zero | (xx < SMALL) | (ww < SMALL) | (wx < SMALL)
            for i in range(32):
                put(w, i, v.select(none, v.f32x16(LEAST), load_lanes(w, i)))

    return GroupWeights(weigh_plain, weigh_importance)


@dataclass(frozen=True)
class PointSearch:
    """Functions (`@fn`) for groups of 32 values; `set` is the address of a set of points.

    match   match(m, set, offset, x, w, scale, to): store the indices of the points nearest to
            x / scale; a lane uses the set after `set` if its offset (i32) is 1
    fit     fit(m, set, x, w, indices): the best scale of points, and its score
    values  values(set, indices, i): value i of 32
    gains   gains(set, x, w, indices, step, qx, qq): add w * q * x and w * q * q, q a value times
            step
    """

    match: Function
    fit: Function
    values: Function
    gains: Function


def build_point_search(group: int) -> PointSearch:
    """Return the search of points of `group` values."""
    four = group == 4

    @fn
    def find_cluster(m, set):
        bounds, code = v.ld_i64(set + 8), v.i32x16(0)
        for i in range(group):
            x = load_lanes(m + SCALED, i)
            if four:
                digit, weight = v.i32x16(0), 5**i
                for k in range(4):
                    digit = digit + v.select(x < v.ld_f32(bounds + 4 * k), v.i32x16(0), v.i32x16(1))
                code = code + digit * weight
            else:
                more = x > v.ld_f32(bounds + 4 * i)
                code = code | v.select(more, v.i32x16(1 << i), v.i32x16(0))
        return code

    @fn
    def square(at, x, w, i):
        diff = v.f32x16_load(at + VECTOR * i) - v.ld_f32(x + VECTOR * i)
        return mul(v.f32x16(v.ld_f32(w + VECTOR * i)), mul(diff, diff))

    @fn
    def nearest_point(set, cluster, x, w):
        """Return the point of a cluster's list with the least weighted distance, of one lane.

        ik_llama.cpp compares eight points at a time; of a tie, the first of the eight places wins.
        """
        first = v.ld_i32(v.ld_i64(set + 16) + 4 * cluster)
        count = v.ld_i32(v.ld_i64(set + 24) + 4 * cluster)
        columns, lanes = (
            v.ld_i64(set + 40) + 4 * group * first,
            v.i32x16_load(v.table(LANE_NUMBERS)),
        )
        least, chosen = v.f32x16(FAR), v.i32x16(0)
        for j in range(0, count, LANES):
            at = columns + 4 * group * j
            if four:
                error = (square(at, x, w, 0) + square(at, x, w, 2)) + (
                    square(at, x, w, 1) + square(at, x, w, 3)
                )
            else:
                even = (square(at, x, w, 0) + square(at, x, w, 4)) + (
                    square(at, x, w, 2) + square(at, x, w, 6)
                )
                error = even + (
                    (square(at, x, w, 1) + square(at, x, w, 5))
                    + (square(at, x, w, 3) + square(at, x, w, 7))
                )
            better = (error < least) & (lanes + j < count)
            least = v.select(better, error, least)
            chosen = v.select(better, lanes + j, chosen)
        place = chosen & 7
        if four:
            place = ((place & 1) << 2) | (place >> 1)
        key = v.select(least == v.vminval(least), (place << 16) | chosen, v.i32x16(1 << 20))
        return v.ld_i32(v.ld_i64(set + 32) + 4 * (first + (v.vminval(key) & 0xFFFF)))

    @fn
    def match(m, set, offset, x, w, scale, to):
        factor, offsets = divide(v.f32x16(1.0), scale), m + POINT
        for g in range(32 // group):
            here = group * VECTOR * g
            for i in range(group):
                put(m + SCALED, i, mul(factor, load_lanes(x + here, i)))
            v.store(m + CLUSTER, find_cluster(m, set))
            v.store(offsets, offset)
            for lane in range(0, VECTOR, 4):
                points = set + SET * v.ld_i32(offsets + lane)
                cluster = v.ld_i32(m + CLUSTER + lane)
                point = nearest_point(points, cluster, m + SCALED + lane, w + here + lane)
                v.st_i32(m + CLUSTER + lane, point)
            put(to, g, v.select(scale == 0.0, v.i32x16(0), v.i32x16_load(m + CLUSTER)))

    @fn
    def values(set, indices, i):
        return v.f32_gather(
            v.ld_i64(set) + 4 * (i % group), load_codes(indices, i // group) * group
        )

    @fn
    def fit(m, set, x, w, indices):
        clear_parts(m + QX)
        clear_parts(m + QQ)
        for i in range(32):
            q = values(set, indices, i)
            wq = mul(q, load_lanes(w, i))
            add_part(m + QX, i, wq, load_lanes(x, i))
            add_part(m + QQ, i, wq, q)
        qx, qq = sum_parts(m + QX), sum_parts(m + QQ)
        some, none = qq > 0.0, v.f32x16(0.0)
        qq = v.select(some, qq, v.f32x16(1.0))
        return v.select(some, qx / qq, none), v.select(some, mul(qx, qx) / qq, none)

    @fn
    def gains(set, x, w, indices, step, qx, qq):
        for i in range(32):
            q = values(set, indices, i) * step
            qx = v.fma(mul(load_lanes(w, i), load_lanes(x, i)), q, qx)
            qq = v.fma(mul(load_lanes(w, i), q), q, qq)
        return qx, qq

    return PointSearch(match, fit, values, gains)


@fn
def group_scale(m, x, least, most):
    """Return the largest magnitude of a group, its divisor, and a mask of groups of zeros."""
    top = v.f32x16(0.0)
    for i in range(32):
        top = v.vmax(top, v.vabs(load_lanes(x, i)))
    zero = top < 1e-16
    row = v.f32x16_load(m + SIGMA)
    row = v.select(row == 0.0, v.f32x16(1.0), row)
    return top, v.vmax(v.f32x16(least), mul(v.f32x16(most), top) / row), zero

"""Quantization of iq1 groups: the best split into three levels, and grid points near it.

The levels are -1, 0 and 1, plus or minus DELTA. The values are sorted; values before a lower bound
get the first level, values from an upper bound on the last. The search tries all pairs of bounds.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quantize.lanes import LANES, SPARE, TABLES, VECTOR, load_lanes, mul, put
from ggml_cpu.quantize.points import load_codes, searcher

DELTA = 0.125
LEAST = -3.4028234663852886e38  # -FLT_MAX

# Tiles: rank of each value, value index at each rank, values and weights by rank, prefix sums.
PLACE, ORDER = SPARE + 80 * VECTOR, SPARE + 112 * VECTOR
SORTED_X, SORTED_W = SPARE + 144 * VECTOR, SPARE + 176 * VECTOR
SUM_X, SUM_W = SPARE + 208 * VECTOR, SPARE + 241 * VECTOR
OTHER_SUM_X, OTHER_SUM_W = SPARE + 274 * VECTOR, SPARE + 307 * VECTOR
POINTS = SPARE + 340 * VECTOR  # codes of the points of all groups

find = searcher(8, 1.0)


@fn
def insert(m, x, lane, n):
    """Store ORDER of n values of a lane with a stable insertion sort."""
    for i in range(n):
        value, j = v.ld_f32(x + VECTOR * i + lane), i
        while j > 0:
            before = v.ld_i32(m + ORDER + VECTOR * (j - 1) + lane)
            if not v.ld_f32(x + VECTOR * before + lane) > value:
                break
            v.st_i32(m + ORDER + VECTOR * j + lane, before)
            j -= 1
        v.st_i32(m + ORDER + VECTOR * j + lane, i)


@fn
def sort(m, x, w, n):
    """Store PLACE, ORDER, SORTED_X and SORTED_W of n values."""
    for i in range(LANES):
        insert(m, x, 4 * i, n)
        for j in range(n):
            here = VECTOR * j + 4 * i
            k = VECTOR * v.ld_i32(m + ORDER + here) + 4 * i
            v.st_f32(m + SORTED_X + here, v.ld_f32(x + k))
            v.st_f32(m + SORTED_W + here, v.ld_f32(w + k))
            v.st_i32(m + PLACE + k, j)


@fn
def split_code(m, first, low, high, flipped):
    """Return the code of eight values by rank: level 0 before `low`, level 2 from `high` on."""
    code = v.i32x16(0)
    for i in range(8):
        place = load_codes(m + PLACE, first + i)
        level = v.select(place >= low, v.i32x16(1), 0) + v.select(place >= high, v.i32x16(1), 0)
        level = v.select(flipped, 2 - level, level)
        code = code | (level << (2 * i))
    return code


@fn
def on_grid(m, code, x, w, scale, delta):
    return find(m, code, scale == scale, x, w, scale, delta - 1.0)


@fn
def gains(x, w, code, delta, times, qx, qq):
    """Add w * q * x to qx and w * q * q to qq, with q = (level - 1 + delta) * times."""
    for i in range(8):
        q = mul(v.to_f32((code >> (2 * i)) & 3) - 1.0 + delta, times)
        wq = mul(load_lanes(w, i), q)
        qx, qq = qx + mul(wq, load_lanes(x, i)), qq + mul(wq, q)
    return qx, qq


@fn
def magnitude(x, n):
    top = v.vabs(load_lanes(x, 0))
    for i in range(1, n):
        top = v.vmax(v.vabs(load_lanes(x, i)), top)
    return top


@fn
def put_point(m, p, code, none):
    """Store the code of point p; for lanes with a zero group, the code of grid index 0."""
    first = v.i32x16(0) + v.ld_i32(v.ld_i64(m + TABLES + 16))
    put(m + POINTS, p, v.select(none, first, code))


@fn
def update_best(qx, qq, scale, best):
    """Return a mask of lanes with a smaller error than the best, the new scale, the new best."""
    better = (qq > 0.0) & (mul(qx, qx) > mul(best, qq))
    scale = v.select(better, qx / v.select(better, qq, v.f32x16(1.0)), scale)
    return better, scale, v.select(better, mul(scale, qx), best)


@fn
def refit_scale(any_off, qx, qq, scale):
    """Return the scale, refitted for lanes with a point that was off the grid."""
    refit = any_off & (qx > 0.0) & (qq > 0.0)
    return v.select(refit, qx / v.select(refit, qq, v.f32x16(1.0)), scale)

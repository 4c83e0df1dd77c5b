"""Fit groups to points of a codebook (ggml-quants.c:iq2_find_best_neighbour and its callers)."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import Function, fn
from ggml_cpu.quantize.lanes import (
    LANES,
    SPARE,
    TABLES,
    VECTOR,
    add_steps,
    load_lanes,
    mul,
    put,
    round_and_clip,
)
from ggml_cpu.quantize.tables import BITS

# Tiles: codes, and flags of codes that replaced a point off the grid.
CODES, TRIED = SPARE, SPARE + 16 * VECTOR
OFF, TRIED_OFF = SPARE + 32 * VECTOR, SPARE + 48 * VECTOR
FOUND, BACK, BIAS, INDEX = (SPARE + (64 + i) * VECTOR for i in range(4))
LANE_NUMBERS = b"".join(i.to_bytes(4, "little") for i in range(LANES))
FAR = 3.4028234663852886e38  # FLT_MAX
AFTER = 1 << 20


@fn
def load_codes(tile, i):
    return v.i32x16_load(tile + VECTOR * i)


@fn
def grid_index(m, code):
    """Return the grid indices of codes that are on the grid."""
    return v.i32_gather(v.ld_i64(m + TABLES), code)


def searcher(length: int, step: float) -> Function:
    """Return on_grid(..), which replaces codes by grid points; a level l is step * l + bias."""
    bits = BITS[length]
    mask = (1 << bits) - 1

    @fn
    def find_nearest(points, x, w, scale, bias):
        """Return index << 16 | code of the listed point with the least weighted squared error.

        x and w are the addresses of a single lane.
        """
        n, lanes = v.ld_i32(points), v.i32x16_load(v.table(LANE_NUMBERS))
        least, chosen = v.f32x16(FAR), v.i32x16(0)
        for j in range(0, n, LANES):
            codes, error = v.i32x16_load(points + 4 + 4 * j), v.f32x16(0.0)
            for i in range(length):
                q = v.to_f32((codes >> (bits * i)) & mask) * step + bias
                diff = mul(q, scale) - v.ld_f32(x + VECTOR * i)
                error = error + mul(mul(diff, v.ld_f32(w + VECTOR * i)), diff)
            better = (error < least) & (lanes + j < n)
            least = v.select(better, error, least)
            chosen = v.select(better, lanes + j, chosen)
        first = v.vminval(v.select(least == v.vminval(least), chosen, v.i32x16(AFTER)))
        return v.ld_i32(points + 4 + 4 * first)

    @fn
    def on_grid(m, code, wanted, x, w, scale, bias):
        """Replace codes off the grid by grid points; return codes and a mask of replaced codes."""
        found = v.i32_gather(v.ld_i64(m + TABLES), code)
        off = wanted & (found < 0)
        if not v.vany(off):
            return code, off
        v.store(m + FOUND, v.select(off, found, v.i32x16(0)))
        v.store(m + BACK, scale)
        v.store(m + BIAS, bias)
        v.store(m + INDEX, code)
        for lane in range(LANES):
            begin = v.ld_i32(m + FOUND + 4 * lane)
            if begin < 0:
                points = v.ld_i64(m + TABLES + 8) + 4 * (-1 - begin)
                back, offset = v.ld_f32(m + BACK + 4 * lane), v.ld_f32(m + BIAS + 4 * lane)
                point = find_nearest(points, x + 4 * lane, w + 4 * lane, back, offset)
                v.st_i32(m + INDEX + 4 * lane, point & 0xFFFF)
        return v.i32x16_load(m + INDEX), off

    return on_grid


def fitter(
    group: int,
    length: int,
    q_max: int,
    tries: int,
    step: float,
    off_only: bool,
    off_first: bool,
    always: bool = False,
) -> Function:
    """Return fit(..), which fits groups of values to points with magnitudes 2 * level + 1.

    tries, step  try factors (2 * q_max - 1 + step * i) / largest for i from -tries to tries
    off_only     the final search, with the best scale, replaces only points that were off the grid
    off_first    if no try succeeds, treat all points as off the grid
    always       run the final search even if no point was off the grid
    """
    bits, points, find = BITS[length], group // length, searcher(length, 2.0)
    mask = (1 << bits) - 1

    @fn
    def round_codes(x, factor):
        code = v.i32x16(0)
        for i in range(length):
            q = round_and_clip(
                mul(mul(factor, load_lanes(x, i)) - 1.0, v.f32x16(0.5)), 0.0, q_max - 1.0
            )
            code = code | (v.to_i32(q) << (bits * i))
        return code

    @fn
    def gains(x, w, code, qx, qq):
        for i in range(length):
            q = v.to_f32(((code >> (bits * i)) & mask) * 2 + 1)
            qx = qx + mul(mul(load_lanes(w, i), load_lanes(x, i)), q)
            qq = qq + mul(mul(load_lanes(w, i), q), q)
        return qx, qq

    @fn
    def try_factor(m, x, w, roots, factor):
        """Store codes in TRIED and return the sums of w * q * x and w * q * q."""
        qx, qq, back = v.f32x16(0.0), v.f32x16(0.0), v.f32x16(1.0) / factor
        all_lanes, one = qx == 0.0, v.f32x16(1.0)
        for p in range(points):
            here = length * VECTOR * p
            code = round_codes(x + here, factor)
            code, off = find(m, code, all_lanes, x + here, roots + here, back, one)
            put(m + TRIED, p, code)
            put(m + TRIED_OFF, p, v.select(off, v.i32x16(1), 0))
            qx, qq = gains(x + here, w + here, code, qx, qq)
        return qx, qq

    @fn
    def search_points(m, x, w, roots, scale):
        """Search points again with the best scale and return the refitted scale."""
        wanted, any_off = scale > 0.0, v.i32x16(0)
        for p in range(points):
            any_off = any_off | load_codes(m + OFF, p)
        wanted = wanted & ((any_off != 0) if not always else wanted)
        if not v.vany(wanted):
            return scale
        qx, qq, one = v.f32x16(0.0), v.f32x16(0.0), v.f32x16(1.0)
        factor = one / v.select(wanted, scale, one)
        for p in range(points):
            here, code = length * VECTOR * p, load_codes(m + CODES, p)
            these = wanted & ((load_codes(m + OFF, p) != 0) if off_only else wanted)
            new = round_codes(x + here, factor)
            new, _ = find(m, new, these, x + here, roots + here, scale, one)
            code = v.select(these, new, code)
            put(m + CODES, p, code)
            qx, qq = gains(x + here, w + here, code, qx, qq)
        wanted = wanted & (qq > 0.0)
        return v.select(wanted, qx / v.select(wanted, qq, one), scale)

    @fn
    def fit(m, x, w, roots, top, scale):
        """Store the codes of a group in CODES and return its scale; top: its largest value."""
        best = v.f32x16(0.0)
        for p in range(points):
            put(m + CODES, p, v.i32x16(0))
            put(m + OFF, p, v.i32x16(1 if off_first else 0))
        for i in range(-tries, tries + 1):
            factor = v.f32x16(add_steps(2.0 * q_max - 1.0, step, i)) / top
            qx, qq = try_factor(m, x, w, roots, factor)
            better = (qq > 0.0) & (mul(qx, qx) > mul(best, qq))
            scale = v.select(better, qx / v.select(better, qq, v.f32x16(1.0)), scale)
            best = v.select(better, mul(scale, qx), best)
            for p in range(points):
                code = v.select(better, load_codes(m + TRIED, p), load_codes(m + CODES, p))
                off = v.select(better, load_codes(m + TRIED_OFF, p), load_codes(m + OFF, p))
                put(m + CODES, p, code)
                put(m + OFF, p, off)
        return search_points(m, x, w, roots, scale)

    return fit


@fn
def magnitudes(x):
    """Replace eight values by their magnitudes and return the signs as bits."""
    bits = v.i32x16(0)
    for i in range(8):
        minus = load_lanes(x, i) < 0.0
        bits = bits | v.select(minus, v.i32x16(1 << i), 0)
        put(x, i, v.select(minus, -load_lanes(x, i), load_lanes(x, i)))
    return bits


@fn
def even_magnitudes(x, w):
    """Like `magnitudes`, with an even number of negative signs; return the first seven bits.

    If the number is odd, the value of least importance gets the wrong sign.
    """
    least, at_least, odd = (
        mul(mul(load_lanes(w, 0), load_lanes(x, 0)), load_lanes(x, 0)),
        v.i32x16(1),
        v.i32x16(0),
    )
    for i in range(8):
        size = mul(mul(load_lanes(w, i), load_lanes(x, i)), load_lanes(x, i))
        less = size < least
        least = v.select(less, size, least)
        at_least = v.select(less, v.i32x16(1 << i), at_least)
        odd = odd ^ v.select(load_lanes(x, i) < 0.0, v.i32x16(1), 0)
    bits = magnitudes(x)
    flip = v.select(odd != 0, at_least, v.i32x16(0))
    for i in range(8):
        put(x, i, v.select((flip & (1 << i)) != 0, -load_lanes(x, i), load_lanes(x, i)))
    return (bits ^ flip) & 127


@fn
def highest(x, n):
    top = load_lanes(x, 0)
    for i in range(1, n):
        top = v.vmax(load_lanes(x, i), top)
    return top


@fn
def put_roots(w, roots, n):
    for i in range(n):
        put(roots, i, v.vsqrt(load_lanes(w, i)))


@fn
def half_steps(scale, factor, most):
    """Return steps 0 .. most with scale = (2 * step + 1) / factor."""
    q = round_and_clip(mul(mul(factor, scale) - 1.0, v.f32x16(0.5)), 0.0, most)
    return v.to_i32(q)

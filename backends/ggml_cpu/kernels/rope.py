"""ROPE and ROPE_BACK: compute a table of angles for each token, then rotate every row."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels._common import (
    F16,
    F32,
    Element,
    n_rows,
    pad_to_lanes,
    require_all,
    row_address,
    run_stop,
    types_are,
)
from ggml_cpu.kernels._moves import copy_bytes
from ggml_py.tensor import Tensor

NEOX, MROPE, VISION, IMROPE = 2, 8, 24, 40
TWO_PI = 6.283185307179586


@fn
def n_pairs(p):
    """Return the number of rotated pairs per row: n_dims / 2, or half the row in VISION mode."""
    return v.ne(p, 0, 0) // 2 if v.op_i32(p, 2) == VISION else v.op_i32(p, 1) // 2


@fn
def correction_dim(n_dims, n_ctx_orig, rotations, base):
    """Return the dimension that rotates `rotations` times within the original context (YaRN)."""
    return n_dims * v.logf(n_ctx_orig / (rotations * TWO_PI)) / (2.0 * v.logf(base))


@fn
def position_axis(p, pair):
    """Return the index of the position (t, h, w, e) that rotates a pair."""
    t, h, w, e = v.op_i32(p, 11), v.op_i32(p, 12), v.op_i32(p, 13), v.op_i32(p, 14)
    sector = pair % (t + h + w + e)
    if v.op_i32(p, 2) == IMROPE:
        if sector % 3 == 1 and sector < 3 * h:
            return 1
        if sector % 3 == 2 and sector < 3 * w:
            return 2
        return 0 if sector % 3 == 0 and sector < 3 * t else 3
    if sector < t:
        return 0
    if sector < t + h:
        return 1
    return 2 if sector < t + h + w else 3


@fn
def theta_power(p, pair):
    """Return the exponent of theta_scale for a pair; it restarts per section in VISION mode."""
    if v.op_i32(p, 2) != VISION:
        return pair
    t, h, w, e = v.op_i32(p, 11), v.op_i32(p, 12), v.op_i32(p, 13), v.op_i32(p, 14)
    sector = pair % (t + h + w + e)
    if sector < t:
        return sector
    if sector < t + h:
        return sector - t
    return sector - t - h if sector < t + h + w else sector - t - h - w


@fn
def row_bytes(pairs: int) -> int:
    """Return the bytes of one f32 per pair, padded to whole vectors.

    A thread's frequencies are four such rows in local scratch. The table in shared scratch has two
    per token: interleaved cosines and sines.
    """
    return 4 * pad_to_lanes(pairs)


@fn
def make_frequencies(p, rows):
    """Store the values that are equal for all tokens, in one row each.

    They are: the power of theta_scale, the index of the position relative to the token's (i32), the
    frequency factor, and the weight of the angle without interpolation (YaRN).
    """
    pairs, n_tokens, n_dims = n_pairs(p), v.ne(p, 1, 2), v.op_i32(p, 1)
    many, size = v.op_i32(p, 2) & MROPE, row_bytes(n_pairs(p))
    base, ext_factor = v.op_f32(p, 5), v.op_f32(p, 7)
    theta_scale = v.powf(base, -2.0 / n_dims)
    low = v.floorf(correction_dim(n_dims, v.op_i32(p, 4), v.op_f32(p, 9), base))
    high = v.ceilf(correction_dim(n_dims, v.op_i32(p, 4), v.op_f32(p, 10), base))
    low, high = max(0.0, low), min(n_dims - 1, high)
    factor = v.float32(1.0)
    for pair in range(pad_to_lanes(pairs)):
        at = rows + 4 * pair
        if pair < pairs and theta_power(p, pair) == 0:
            factor = v.float32(1.0)
        v.st_f32(at, factor)
        v.st_i32(at + size, position_axis(p, pair) * n_tokens if many else 0)
        has_factor = pair < pairs and v.data(p, 3) != 0
        v.st_f32(at + 2 * size, v.ld_f32(v.data(p, 3) + 4 * pair) if has_factor else 1.0)
        y = (pair - low) / max(0.001, high - low)
        ramp = (1.0 - min(1.0, max(0.0, y))) * ext_factor
        v.st_f32(at + 3 * size, ramp if ext_factor != 0.0 else 0.0)
        factor = v.float32(factor * theta_scale)


@fn
def make_angles(p, table, rows, token, sign):
    """Store (cos, sin) of one token's pairs, with YaRN's interpolation.

    sign: 1 for ROPE, -1 for ROPE_BACK.
    """
    many, size = v.op_i32(p, 2) & MROPE, row_bytes(n_pairs(p))
    freq_scale, ext_factor, magnitude = v.op_f32(p, 6), v.op_f32(p, 7), v.op_f32(p, 8)
    if ext_factor != 0.0:
        magnitude = v.float32(magnitude * (1.0 + 0.1 * v.logf(1.0 / freq_scale)))
    place = v.data(p, 2) + 4 * token
    position = v.to_f32(v.i32_bcast(place))
    for at in range(rows, rows + size, 4 * v.LANES):
        if many:
            position = v.to_f32(v.i32_gather(place, v.i32_load(at + size)))
        theta = position * v.f32_load(at) / v.f32_load(at + 2 * size)
        angle = theta * freq_scale
        if ext_factor != 0.0:
            ramp = v.f32_load(at + 3 * size)
            angle = angle * (1.0 - ramp) + theta * ramp
        s, c = v.vsincos(angle)
        c, s = c * magnitude, s * (magnitude * sign)
        to = table + 2 * (at - rows)
        v.store(to, v.zip_low(c, s))
        v.store(to + 4 * v.LANES, v.zip_high(c, s))


@fn
def make_table(p, sign, ith, nth):
    """Store (cos, sin) of all pairs and tokens, f32 [2, padded pairs, T], in shared scratch."""
    start, stop = v.split(v.ne(p, 1, 2), ith, nth)
    if start < stop:
        make_frequencies(p, v.local(p, ith))
    for t in range(start, stop):
        table = v.shared(p) + 2 * row_bytes(n_pairs(p)) * t
        make_angles(p, table, v.local(p, ith), t, sign)


@kernel(reads=(2, 3))
def rope_table(p, ith, nth):
    make_table(p, v.float32(1.0), ith, nth)


@kernel(reads=(2, 3))
def rope_back_table(p, ith, nth):
    make_table(p, v.float32(-1.0), ith, nth)


def table_bytes(node: Tensor, nth: int) -> tuple[int, int]:
    """Return scratch bytes; shared: the angles of all tokens, local: a thread's frequencies."""
    row = row_bytes(-(-node.ne[0] // 2))
    return 2 * row * node.source(0).ne[2], 4 * row


def _rope(element: Element) -> None:
    size = element.size
    load, store = element.load, element.store
    load_n, store_n = element.load_n, element.store_n

    @fn
    def turned_halves(table, a, b):
        """Return (a, b) rotated by the angles of LANES pairs."""
        t0, t1 = v.f32_load(table), v.f32_load(table + 4 * v.LANES)
        c, s = v.evens(t0, t1), v.odds(t0, t1)
        return a * c - b * s, a * s + b * c

    @fn
    def rotate_halves(d, x, table, pairs, distance):
        """Rotate pairs of elements `distance` bytes apart."""
        i = 0
        while i + v.LANES <= pairs:
            at = x + i * size
            a, b = turned_halves(table + 8 * i, load(at), load(at + distance))
            store(d + i * size, a)
            store(d + i * size + distance, b)
            i += v.LANES
        if i < pairs:
            at, n = x + i * size, pairs - i
            a, b = turned_halves(table + 8 * i, load_n(at, n), load_n(at + distance, n))
            store_n(d + i * size, a, n)
            store_n(d + i * size + distance, b, n)

    @fn
    def turned_pairs(table, x, signs):
        """Return the LANES / 2 adjacent pairs of x, rotated by their angles."""
        t = v.f32_load(table)
        c, s = v.repeat_each(v.even(t), 2), v.repeat_each(v.odd(t), 2)
        return x * c + v.swap_pairs(x) * (s * signs)

    @fn
    def rotate_pairs(d, x, table, n):
        """Rotate the pairs (2 i, 2 i + 1) of n elements."""
        signs = v.select((v.iota() & 1) == 0, v.f32(-1.0), v.f32(1.0))
        i = 0
        while i + v.LANES <= n:
            store(d + i * size, turned_pairs(table + 4 * i, load(x + i * size), signs))
            i += v.LANES
        if i < n:
            last = turned_pairs(table + 4 * i, load_n(x + i * size, n - i), signs)
            store_n(d + i * size, last, n - i)

    @fn
    def rotate_row(p, d, x, table):
        n, mode, pairs = v.ne(p, 0, 0), v.op_i32(p, 2), n_pairs(p)
        first, end = v.op_i32(p, 15) * size, (v.op_i32(p, 15) + 2 * pairs) * size
        if mode & (NEOX | MROPE):
            half = v.op_i32(p, 1) if mode == VISION else pairs
            rotate_halves(d + first, x + first, table, pairs, half * size)
        else:
            rotate_pairs(d + first, x + first, table, 2 * pairs)
        if d != x and end - first < n * size:
            copy_bytes(d, x, first)
            copy_bytes(d + end, x + end, n * size - end)

    def rope(p, ith, nth):
        r, stop = v.split(n_rows(p, 0), ith, nth)
        while r < stop:  # heads of one token
            d, x, end = row_address(p, 0, r), row_address(p, 1, r), run_stop(p, 0, r, stop)
            token = r // v.ne(p, 0, 1) % v.ne(p, 0, 2)
            table = v.shared(p) + 2 * row_bytes(n_pairs(p)) * token
            for i in range(end - r):
                rotate_row(p, d + i * v.nb(p, 0, 1), x + i * v.nb(p, 1, 1), table)
            r = end

    for op, step in (("ROPE", rope_table), ("ROPE_BACK", rope_back_table)):
        kernel(
            op,
            when=require_all(types_are(element.name, element.name), dense_result),
            prepare=(step,),
            scratch=table_bytes,
            name=f"{op.lower()}_{element.name}",
        )(rope)


def dense_result(node: Tensor) -> str:
    """Require dense rows of src0; dst then also has dense rows."""
    x = node.source(0)
    return "" if x.nb[0] == x.type.type_size else f"needs dense rows; got {x}"


for _e in (F32, F16):
    _rope(_e)

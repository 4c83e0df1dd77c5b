"""Rotary position embedding: a table of angles for the tokens, then the rotation of every row."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels.common import F16, F32, both, n_rows, row_at, types_are
from ggml_cpu.kernels.copy import copy_bytes

NEOX, MROPE, VISION, IMROPE = 2, 8, 24, 40
TWO_PI = 6.283185307179586


@fn
def n_pairs(p):
    """Rotated pairs of a row: n_dims / 2, or half the row in the vision mode."""
    return v.ne(p, 0, 0) // 2 if v.op_i32(p, 2) == VISION else v.op_i32(p, 1) // 2


@fn
def correction_dim(n_dims, n_ctx_orig, rotations, base):
    """The dimension that turns `rotations` times within the original context (YaRN)."""
    return n_dims * v.logf(n_ctx_orig / (rotations * TWO_PI)) / (2.0 * v.logf(base))


@fn
def axis_of(p, pair):
    """Which of the four positions turns this pair."""
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
def power_of(p, pair):
    """How many times a pair's angle was multiplied by theta_scale; sections restart in VISION."""
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
def store_angle(p, table, pair, theta, sign):
    """cos and sin of one pair turned by `sign`, with frequency factors and YaRN's interpolation."""
    if v.data(p, 3) != 0:
        theta = theta / v.ld_f32(v.data(p, 3) + 4 * pair)
    n_dims, n_ctx_orig, base = v.op_i32(p, 1), v.op_i32(p, 4), v.op_f32(p, 5)
    freq_scale, ext_factor, magnitude = v.op_f32(p, 6), v.op_f32(p, 7), v.op_f32(p, 8)
    angle = freq_scale * theta
    if ext_factor != 0.0:
        low = v.floorf(correction_dim(n_dims, n_ctx_orig, v.op_f32(p, 9), base))
        high = v.ceilf(correction_dim(n_dims, n_ctx_orig, v.op_f32(p, 10), base))
        low, high = max(0.0, low), min(n_dims - 1, high)
        y = (pair - low) / max(0.001, high - low)
        ramp = (1.0 - min(1.0, max(0.0, y))) * ext_factor
        angle = angle * (1.0 - ramp) + theta * ramp
        magnitude = magnitude * (1.0 + 0.1 * v.logf(1.0 / freq_scale))
    v.st_f32(table + 8 * pair, v.cosf(angle) * magnitude)
    v.st_f32(table + 8 * pair + 4, v.sinf(angle) * magnitude * sign)


@fn
def make_table(p, sign, ith, nth):
    """(cos, sin) of every pair of every token, f32 [2, pairs, T] in the shared scratch."""
    pairs, n_tokens = n_pairs(p), v.ne(p, 1, 2)
    many = v.op_i32(p, 2) & MROPE
    theta_scale = v.powf(v.op_f32(p, 5), -2.0 / v.op_i32(p, 1))
    start, stop = v.split(n_tokens, ith, nth)
    for t in range(start, stop):
        table = v.shared(p) + 8 * pairs * t
        factor = v.float32(1.0)
        for pair in range(pairs):
            axis = axis_of(p, pair) if many else 0
            position = v.ld_i32(v.data(p, 2) + 4 * (t + axis * n_tokens))
            if power_of(p, pair) == 0:
                factor = v.float32(1.0)
            store_angle(p, table, pair, v.float32(position * factor), sign)
            factor = v.float32(factor * theta_scale)


@kernel(reads=(2, 3))
def rope_table(p, ith, nth):
    make_table(p, v.float32(1.0), ith, nth)


@kernel(reads=(2, 3))
def rope_back_table(p, ith, nth):
    make_table(p, v.float32(-1.0), ith, nth)


def table_bytes(node, nth):
    """The angles of all tokens."""
    return 4 * node.ne[0] * node.src[0].ne[2], 0


def _rope(element):
    ld, st, size = element.ld, element.st, element.size
    load, store = element.load, element.store

    @fn
    def rotate_one(d, x, table, distance):
        a, b = ld(x), ld(x + distance)
        c, s = v.ld_f32(table), v.ld_f32(table + 4)
        st(d, a * c - b * s)
        st(d + distance, a * s + b * c)

    @fn
    def rotate_halves(d, x, table, pairs, distance):
        """Pairs (i, i + distance)."""
        i = 0
        while i + v.LANES <= pairs:
            t0, t1 = v.f32_load(table + 8 * i), v.f32_load(table + 8 * i + 4 * v.LANES)
            c, s = v.evens(t0, t1), v.odds(t0, t1)
            a, b = load(x + i * size), load(x + i * size + distance)
            store(d + i * size, a * c - b * s)
            store(d + i * size + distance, a * s + b * c)
            i += v.LANES
        while i < pairs:
            rotate_one(d + i * size, x + i * size, table + 8 * i, distance)
            i += 1

    def rope(p, ith, nth):
        n, n_dims, mode, pairs = v.ne(p, 0, 0), v.op_i32(p, 1), v.op_i32(p, 2), n_pairs(p)
        half = n_dims if mode == VISION else pairs
        first, end = v.op_i32(p, 15) * size, (v.op_i32(p, 15) + 2 * pairs) * size
        start, stop = v.split(n_rows(p, 0), ith, nth)
        for r in range(start, stop):
            d, x = row_at(p, 0, r), row_at(p, 1, r)
            table = v.shared(p) + 8 * pairs * (r // v.ne(p, 0, 1) % v.ne(p, 0, 2))
            if mode & (NEOX | MROPE):
                rotate_halves(d + first, x + first, table, pairs, half * size)
            else:
                for i in range(pairs):
                    at = first + 2 * i * size
                    rotate_one(d + at, x + at, table + 8 * i, size)
            if d != x and end - first < n * size:
                copy_bytes(d, x, first)
                copy_bytes(d + end, x + end, n * size - end)

    for op, step in (("ROPE", rope_table), ("ROPE_BACK", rope_back_table)):
        kernel(
            op,
            when=both(types_are(element.name, element.name), dense_result),
            prepare=(step,),
            scratch=table_bytes,
            name=f"{op.lower()}_{element.name}",
        )(rope)


def dense_result(node):
    """The rows of both tensors are dense."""
    x = node.src[0]
    return "" if x.nb[0] == x.type.type_size else f"needs dense rows; got {x}"


for _e in (F32, F16):
    _rope(_e)

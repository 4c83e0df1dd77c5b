"""Rows as 16-bit integers, split into two signed bytes, in the layout of AMX tile registers.

A tile register has 16 rows of 64 bytes. For one operand, a register row holds 64 values of one row.
For the other, it holds four values (a 32-bit word) of each of 16 rows. `two_bytes` puts the same
four values into a word for both operands.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.amx import LINE, ROWS
from ggml_cpu.blocks.integers16 import TINY
from ggml_cpu.kernel import Function, fn
from ggml_cpu.kernels.attention._parts import K_KIND, KEYS, V_KIND, K, V, kv_address
from ggml_cpu.kernels.attention._sources import WORD, Source
from ggml_cpu.kernels.attention._tile_weights import build_join
from ggml_cpu.kernels.attention.flash_tiles import prefetch_keys
from ggml_cpu.target import AMX, LANES

STEP = LINE  # values of a row per register
PART = ROWS * LINE  # bytes of a register
BOTH = 2 * PART  # bytes of two registers: high bytes, then low bytes
MOST = 32639.0  # largest integer in two signed bytes: 127 * 256 + 127
TOPS_BYTES = LANES * WORD + 4 * KEYS  # maxima of LANES rows, inverse scales of KEYS rows
# Offsets after the scales of keys: scales of values, 0 or NaN per value, the sum of the latter.
OF_VALUES, BROKEN, ANY_BROKEN = 4 * KEYS, 8 * KEYS, 12 * KEYS
assert KEYS == STEP == 4 * LANES or not AMX


@fn
def count_steps(d: int) -> int:
    return (d + STEP - 1) // STEP


@fn
def two_bytes(w, x, y, z):
    """Return words of high bytes (rounded) and of low bytes (the signed rest) of 16-bit integers.

    A word holds one value of each of the four vectors.
    """
    first, second = (w & 0xFFFF) | (x << 16), (y & 0xFFFF) | (z << 16)
    up, above = v.as_i32(v.as_i16(first) + 128), v.as_i32(v.as_i16(second) + 128)
    high = ((up >> 8) & 0x00FF00FF) | (above & -0x00FF0100)
    return high, (first & 0x00FF00FF) | ((second << 8) & -0x00FF0100)


@fn
def integers(x, factor):
    return v.to_i32(v.vround(x * factor))


def splitting(load_n: Function, size: int) -> Function:
    """Return load_step(x, n, factor): factor times quarters of STEP values at x, as `two_bytes`.

    Elements have `size` bytes; only the first n values exist.
    """

    @fn
    def load_step(x, n, factor):
        quarter = size * LANES
        return two_bytes(
            integers(load_n(x, n), factor),
            integers(load_n(x + quarter, n - LANES), factor),
            integers(load_n(x + 2 * quarter, n - 2 * LANES), factor),
            integers(load_n(x + 3 * quarter, n - 3 * LANES), factor),
        )

    return load_step


@fn
def farther(x, y):
    """Return the larger values of two non-negative vectors; NaN counts as the largest."""
    return v.as_f32(v.vmax(v.as_i32(x), v.as_i32(y)))


largest = build_join(farther, LANES)


def loading(source: Source) -> Function:
    """Return load_keys(p, pair, key, n, keys, values, scales, spare): pack keys and values."""
    place, step = source.place, source.step
    load, load_n, size = source.element.load, source.element.load_n, source.element.size
    load_step = splitting(load_n, size)

    @fn
    def scale_rows(src, stride, rows, n, scales, inverses, tops):
        """Store the scales of up to LANES rows of n values, and their inverses.

        A scale is NaN if a value is not finite, and 0 for missing rows. The inverse is then 0.
        """
        for r in range(LANES):
            at, top = src + max(0, min(r, rows - 1)) * stride, v.f32(0.0)
            for i in range(0, n, LANES):
                top = farther(v.vabs(load_n(at + size * i, n - i)), top)
            v.store(tops + WORD * r, top)
        top = largest(tops)
        scale = v.select(top < TINY, 0.0, v.fma(top, 1 / MOST, top * 0.0))
        scale = v.select(v.iota() < rows, scale, 0.0)
        v.store(scales, scale)
        v.store(inverses, v.select(scale > 0.0, 1.0 / scale, 0.0))

    @fn
    def put_keys(src, stride, rows, d, to, inverses):
        """Pack up to LANES keys of d values; the last key fills missing rows."""
        for s in range(count_steps(d)):
            high, low = v.i32_regs(LANES), v.i32_regs(LANES)
            for r in range(LANES):
                at = src + min(r, rows - 1) * stride + size * STEP * s
                high[r], low[r] = load_step(at, d - STEP * s, v.f32_bcast(inverses + 4 * r))
            v.transpose(high)
            v.transpose(low)
            for r in range(LANES):
                v.store(to + s * BOTH + LINE * r, high[r])
                v.store(to + s * BOTH + LINE * r + PART, low[r])

    @fn
    def put_values(src, stride, rows, dv, to, inverses):
        """Pack up to KEYS rows of dv values; the last row fills missing rows.

        A word holds one column of rows r, r + LANES, r + 2 * LANES and r + 3 * LANES.
        """
        for r in range(LANES):
            first, second = src + min(r, rows - 1) * stride, src + min(r + LANES, rows - 1) * stride
            third = src + min(r + 2 * LANES, rows - 1) * stride
            fourth = src + min(r + 3 * LANES, rows - 1) * stride
            at = inverses + 4 * r
            a, b = v.f32_bcast(at), v.f32_bcast(at + WORD)
            c, d = v.f32_bcast(at + 2 * WORD), v.f32_bcast(at + 3 * WORD)
            for i in range(0, dv, LANES):
                high, low = two_bytes(
                    integers(load(first + size * i), a),
                    integers(load(second + size * i), b),
                    integers(load(third + size * i), c),
                    integers(load(fourth + size * i), d),
                )
                v.store(to + i // LANES * BOTH + LINE * r, high)
                v.store(to + i // LANES * BOTH + LINE * r + PART, low)

    @fn
    def load_keys(p, pair, key, n, keys, values, scales, spare):
        """Pack n keys and values and store their scales; prefetch the next KEYS."""
        d, dv, inverses = v.ne(p, K, 0), v.ne(p, V, 0), spare + LANES * WORD
        moved, stride = spare + TOPS_BYTES, v.nb(p, K, 1)
        src = place(v.extra(p, K_KIND), kv_address(p, K, pair, key), stride, n, d, moved)
        stride = step(stride, d)
        for j in range(0, n, LANES):
            rows, to = min(LANES, n - j), keys + j // LANES * count_steps(d) * BOTH
            scale_rows(src, stride, rows, d, scales + 4 * j, inverses, spare)
            put_keys(src, stride, rows, d, to, inverses)
            src += LANES * stride
        of_values, bad, stride = scales + OF_VALUES, v.f32(0.0), v.nb(p, V, 1)
        src = place(v.extra(p, V_KIND), kv_address(p, V, pair, key), stride, n, dv, moved)
        stride = step(stride, dv)
        for j in range(0, KEYS, LANES):
            rows, first = n - j, src + min(j, n - 1) * stride
            scale_rows(first, stride, rows, dv, of_values + 4 * j, inverses + 4 * j, spare)
            scale = v.f32_load(of_values + 4 * j)
            v.store(scales + BROKEN + 4 * j, scale * 0.0)
            v.store(of_values + 4 * j, v.select(scale == scale, scale, 0.0))
            bad = v.fma(scale, 0.0, bad)
        v.st_f32(scales + ANY_BROKEN, v.float32(v.vsum(bad)))
        put_values(src, stride, n, dv, values, inverses)
        prefetch_keys(p, pair, key + KEYS)

    return load_keys

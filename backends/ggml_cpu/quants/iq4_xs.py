"""iq4_xs: blocks of 256, eight groups of 32 uneven levels with 6-bit scales (block_iq4_xs).

In place, 136 bytes: d f16 | upper two bits of the scales u16 | lower four bits, nibbles [8] | u8
[8][16], a group's low nibbles are values 0..15, its high ones 16..31. A value is d * (scale - 32) *
level. In a panel the block is kept word by word: word i of LANES rows is one vector, at i * WORD.

Where the levels are biased, I8_BIAS * (scale - 32) * (sum of the activations) is subtracted.
"""

from __future__ import annotations

import numpy as np

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quants.activations import Q8_K, Q8_K_BYTES, Q8_K_SCALE, Q8_K_SUM32
from ggml_cpu.quants.interleave import interleave_words, separate_words
from ggml_cpu.quants.levels import UNEVEN, both_levels, store_levels, table_of
from ggml_cpu.quants.weight import Weight, register
from ggml_cpu.target import I8_BIAS, LANES
from ggml_py.types import BY_NAME

BYTES = 136
WORDS = BYTES // 4
VALUES = 8  # in place
WORD = 4 * LANES
PANEL = BYTES * LANES
AHEAD = 4096  # bytes to prefetch ahead, in place
TABLE = table_of(UNEVEN)
TWICE = np.arange(0, 16, 2, dtype=np.int32).tobytes()


@fn
def unpack(src, stride, rows, n, dst):
    for _ in range(n // 256):
        interleave_words(src, stride, rows, WORDS, dst, WORD)
        src += BYTES
        dst += PANEL


@fn
def row(panel, r, n, dst):
    for _ in range(n // 256):
        separate_words(panel, r, WORDS, dst)
        panel += PANEL
        dst += BYTES


@fn
def scale_pairs(lower, upper, g):
    """Scales of groups g and g + 2 in the halves of each word, as i16."""
    low = (lower >> (4 * g)) & 0x0F0F
    top = (upper >> (2 * g)) & 0x33
    pairs = ((low | low << 8) & 0x000F000F) | ((top << 4 | top << 16) & 0x00300030)
    return v.as_i16(pairs) - 32


def tile(width):
    @fn
    def add_32(levels, w, a, scale, sums):
        """sums[t] += scale * dot over a group."""
        dots = v.i32_regs(width)
        for i in range(4):
            low, high = both_levels(levels, v.i8_load(w + WORD * i))
            at = a + 4 * width * i
            for t in range(width):
                x = v.as_i8(v.i32_bcast(at + 4 * t))
                y = v.as_i8(v.i32_bcast(at + 16 * width + 4 * t))
                dots[t] = v.dot4_biased(v.dot4_biased(dots[t], low, x), high, y)
        for t in range(width):
            sums[t] = sums[t] + dots[t] * scale

    @fn
    def add_128(levels, w, a, totals, pairs, others, sums):
        """The same over four groups, their scales in two vectors; the bias is taken off."""
        first, second = v.as_i32(pairs), v.as_i32(others)
        add_32(levels, w, a, v.asr(first << 16, 16), sums)
        add_32(levels, w + 4 * WORD, a + 32 * width, v.asr(second << 16, 16), sums)
        add_32(levels, w + 8 * WORD, a + 64 * width, v.asr(first, 16), sums)
        add_32(levels, w + 12 * WORD, a + 96 * width, v.asr(second, 16), sums)
        for t in range(width):
            x = v.as_i16(v.i32_bcast(totals + 4 * t))
            y = v.as_i16(v.i32_bcast(totals + 4 * (width + t)))
            sums[t] = sums[t] - v.dot2(v.dot2(v.i32(0), pairs, x), others, y) * I8_BIAS

    @fn
    def multiply(w, a, steps, out):
        levels = v.i8x16_load(v.table(TABLE)) ^ I8_BIAS
        for t in range(width):
            v.store(out + WORD * t, v.f32(0.0))
        for _ in range(steps):
            sums = v.i32_regs(width)
            both, lower = v.i32_load(w), v.i32_load(w + WORD)
            for half in range(2):
                pairs = scale_pairs(lower, both >> 16, 4 * half)
                others = scale_pairs(lower, both >> 16, 4 * half + 1)
                values, x = w + WORD * (2 + 16 * half), a + 128 * width * half
                totals = a + (Q8_K_SUM32 + 8 * half) * width
                add_128(levels, values, x, totals, pairs, others, sums)
            d = v.f16_to_f32(v.to_i16(both))
            for t in range(width):
                scale = d * v.f32_bcast(a + Q8_K_SCALE * width + 4 * t)
                so_far = v.f32_load(out + WORD * t)
                v.store(out + WORD * t, v.fma(scale, v.to_f32(sums[t]), so_far))
            w += PANEL
            a += Q8_K_BYTES * width

    return multiply


@fn
def scales_of(block):
    """The eight scales of a block in place, less 32, as i32x8."""
    twice = v.i32x8_load(v.table(TWICE))
    low = (v.i32x8(v.ld_i32(block + 4)) >> (twice << 1)) & 15
    return (low | (((v.i32x8(v.ld_u16(block + 2)) >> twice) & 3) << 4)) - 32


@fn
def add_half(levels, block, a, scales, sums):
    """sums + scale * dot over four groups in place."""
    low, high = both_levels(levels, v.i8x64_load(block))
    x = v.as_i64(v.concat(v.i8x64_load(a), v.i8x64_load(a + 64)))
    first = v.as_i8(v.shuffle(x, 0, 1, 4, 5, 8, 9, 12, 13))
    last = v.as_i8(v.shuffle(x, 2, 3, 6, 7, 10, 11, 14, 15))
    dots = v.dot4_biased(v.dot4_biased(v.i32x16(0), low, first), high, last)
    return sums + dots * v.repeat_each(scales, 4)


@fn
def dot(src, stride, rows, a, n, out):
    levels = v.i8x16_load(v.table(TABLE)) ^ I8_BIAS
    total = v.f32x16(0.0)
    for _ in range(n // 256):
        for i in range(0, BYTES, 64):
            v.prefetch_nta(src + AHEAD + i)
        scales = scales_of(src)
        ordered = v.shuffle(v.to_i16(scales), 0, 2, 1, 3, 4, 6, 5, 7)
        bias = v.dot2(v.i32x4(0), ordered, v.i16x8_load(a + Q8_K_SUM32)) * I8_BIAS
        sums = v.concat(v.concat(v.i32x4(0) - bias, v.i32x4(0)), v.i32x8(0))
        sums = add_half(levels, src + VALUES, a, v.low(scales), sums)
        sums = add_half(levels, src + VALUES + 64, a + 128, v.high(scales), sums)
        scale = v.ld_f16(src) * v.ld_f32(a + Q8_K_SCALE)
        total = v.fma(scale, v.to_f32(sums), total)
        src += BYTES
        a += Q8_K_BYTES
    v.st_f32(out, v.vsum(total))


@fn
def dequantize(src, n, dst):
    for _ in range(n // 256):
        scales = v.to_f32(scales_of(src)) * v.ld_f16(src)
        for g in range(8):
            values = src + VALUES + 16 * g
            store_levels(values, v.table(TABLE), v.lane(scales, g), dst + 128 * g)
        src += BYTES
        dst += 1024


register(Weight(BY_NAME["iq4_xs"], Q8_K, LANES, PANEL, unpack, tile, dot, 1, dequantize, row))

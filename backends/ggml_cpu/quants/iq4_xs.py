"""iq4_xs: 256 nonlinear levels in eight groups of 32 with 6-bit scales (block_iq4_xs).

Block, 136 bytes: d f16 | upper two bits of the scales u16 | lower four bits, nibbles [8] | u8
[8][16], low nibbles of a group are values 0..15, high nibbles 16..31. A value is d * (scale - 32) *
level. A panel keeps the word order of blocks: word i of LANES rows is one vector, at i * WORD.

If levels are biased, kernels subtract I8_BIAS * (scale - 32) * (sum of the activations).
"""

from __future__ import annotations

import numpy as np

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks import walk
from ggml_cpu.blocks.activations import SCALE_256, SUMS32_256
from ggml_cpu.blocks.ahead import fetcher, slow_fetcher
from ggml_cpu.blocks.dots import ANY, biased_dot, choose_dots
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.interleave import word_by_word
from ggml_cpu.blocks.levels import UNEVEN_TABLE, both_levels, nearest_uneven, store_levels
from ggml_cpu.blocks.panels import WORD
from ggml_cpu.blocks.rounding import inverse, store_nibbles
from ggml_cpu.blocks.search import largest_scale, uneven
from ggml_cpu.kernel import Function, fn
from ggml_cpu.quants.q8_K import ACTIVATIONS
from ggml_cpu.target import I8_BIAS, LANES
from ggml_py.types import BY_NAME

VALUES = 8  # offset in a block
TWICE = np.arange(0, 16, 2, dtype=np.int32).tobytes()


@fn
def scale_pairs(lower, upper, g):
    """Return the scales of groups g and g + 2 as the i16 halves of each word."""
    low = (lower >> (4 * g)) & 0x0F0F
    top = (upper >> (2 * g)) & 0x33
    pairs = ((low | low << 8) & 0x000F000F) | ((top << 4 | top << 16) & 0x00300030)
    return v.as_i16(pairs) - 32


IQ4_XS = BY_NAME["iq4_xs"]


def add_block(width: int) -> Function:
    size, _, _, _, two, _, add_dots, _ = choose_dots(width, 8, ANY, biased_dot)
    fetch = fetcher(width, IQ4_XS.type_size * LANES, 2)
    slowly = slow_fetcher(IQ4_XS.type_size * LANES, 8)
    alone = width == 1

    @fn
    def fetch_slowly(w, part):
        if alone:
            slowly(w, part)

    @fn
    def add_32(levels, w, a, n, scale, sums):
        """Add scale * (dot product of a group) to sums[t]."""
        dots = v.i32_regs(size)
        for i in range(4):
            low, high = both_levels(levels, v.i8_load(w + WORD * i))
            two(dots, i, low, high, a, n + i)
        add_dots(sums, dots, scale)

    @fn
    def add_128(levels, block, part, w, a, n, totals, pairs, others, sums):
        """Add four groups, with their scales in two vectors, and subtract the bias."""
        first, second = v.as_i32(pairs), v.as_i32(others)
        fetch_slowly(block, part)
        add_32(levels, w, a, n, v.asr(first << 16, 16), sums)
        fetch_slowly(block, part + 1)
        add_32(levels, w + 4 * WORD, a, n + 8, v.asr(second << 16, 16), sums)
        fetch_slowly(block, part + 2)
        add_32(levels, w + 8 * WORD, a, n + 16, v.asr(first, 16), sums)
        fetch_slowly(block, part + 3)
        add_32(levels, w + 12 * WORD, a, n + 24, v.asr(second, 16), sums)
        for t in range(width):
            x = v.as_i16(v.i32_bcast(totals + 4 * t))
            y = v.as_i16(v.i32_bcast(totals + 4 * (width + t)))
            sums[t] = sums[t] - v.dot2(v.dot2(v.i32(0), pairs, x), others, y) * I8_BIAS

    @fn
    def add(_, w, a, out):
        levels = v.i8x16_load(v.table(UNEVEN_TABLE)) ^ I8_BIAS
        sums = v.i32_regs(width)
        both, lower = v.i32_load(w), v.i32_load(w + WORD)
        for half in range(2):
            if not alone:
                fetch(w, half, 0)
            pairs = scale_pairs(lower, both >> 16, 4 * half)
            others = scale_pairs(lower, both >> 16, 4 * half + 1)
            values, totals = w + WORD * (2 + 16 * half), a + (SUMS32_256 + 8 * half) * width
            add_128(levels, w, 4 * half, values, a, 32 * half, totals, pairs, others, sums)
        d = v.f16_to_f32(v.to_i16(both))
        for t in range(width):
            scale = d * v.f32_bcast(a + SCALE_256 * width + 4 * t)
            so_far = v.f32_load(out + WORD * t)
            v.store(out + WORD * t, v.fma(scale, v.to_f32(sums[t]), so_far))

    return add


def build_put_block(put: Function, size: int) -> Function:
    @fn
    def put_32(levels, w, scale, to):
        """Call `put` for the words of a group."""
        offset = scale * float(-I8_BIAS)
        for i in range(4):
            low, high = both_levels(levels, v.i8_load(w + WORD * i))
            put(low, scale, offset, to + size * i)
            put(high, scale, offset, to + size * (i + 4))

    @fn
    def put_block(_, w, to):
        levels = v.i8x16_load(v.table(UNEVEN_TABLE)) ^ I8_BIAS
        both, lower = v.i32_load(w), v.i32_load(w + WORD)
        d = v.f16_to_f32(v.to_i16(both))
        for g in range(8):
            pairs = v.as_i32(scale_pairs(lower, both >> 16, g // 4 * 4 + g % 2))
            scale = d * v.to_f32(v.asr(pairs << (16 - 8 * (g & 2)), 16))
            put_32(levels, w + WORD * (2 + 4 * g), scale, to + 8 * size * g)

    return put_block


@fn
def load_scales(block):
    """Return the eight scales of a block in place, minus 32, as i32x8."""
    twice = v.i32x8_load(v.table(TWICE))
    low = (v.i32x8(v.ld_i32(block + 4)) >> (twice << 1)) & 15
    return (low | (((v.i32x8(v.ld_u16(block + 2)) >> twice) & 3) << 4)) - 32


@fn
def add_half(levels, block, a, scales, sums):
    """Return sums + scale * dot over four groups of a block in place."""
    low, high = both_levels(levels, v.i8x64_load(block))
    x = v.as_i64(v.concat(v.i8x64_load(a), v.i8x64_load(a + 64)))
    first = v.as_i8(v.shuffle(x, 0, 1, 4, 5, 8, 9, 12, 13))
    last = v.as_i8(v.shuffle(x, 2, 3, 6, 7, 10, 11, 14, 15))
    dots = v.dot4_biased(v.dot4_biased(v.i32x16(0), low, first), high, last)
    return sums + dots * v.repeat_each(scales, 4)


@fn
def add_in_place(block, a, total, less):
    levels = v.i8x16_load(v.table(UNEVEN_TABLE)) ^ I8_BIAS
    scales = load_scales(block)
    ordered = v.shuffle(v.to_i16(scales), 0, 2, 1, 3, 4, 6, 5, 7)
    bias = v.dot2(v.i32x4(0), ordered, v.i16x8_load(a + SUMS32_256)) * I8_BIAS
    sums = v.concat(v.concat(v.i32x4(0) - bias, v.i32x4(0)), v.i32x8(0))
    sums = add_half(levels, block + VALUES, a, v.low(scales), sums)
    sums = add_half(levels, block + VALUES + 64, a + 128, v.high(scales), sums)
    scale = v.ld_f16(block) * v.ld_f32(a + SCALE_256)
    return v.fma(scale, v.to_f32(sums), total), less


@fn
def decode(block, x):
    scales = v.to_f32(load_scales(block)) * v.ld_f16(block)
    for g in range(8):
        values = block + VALUES + 16 * g
        store_levels(values, v.table(UNEVEN_TABLE), v.lane(scales, g), x + 128 * g)


@fn
def find_scale(x, spare):
    return uneven(x, 7)


find_largest = largest_scale(find_scale, 8)


@fn
def encode(x, block):
    d = -find_largest(x, block) / v.float32(32.0)
    v.st_f16(block, d)
    upper, lower = 0, 0
    for g in range(8):
        at = x + 128 * g
        step = max(-32, min(31, int(v.rintf(inverse(d) * find_scale(at, block)))))
        upper, lower = upper | (step + 32 >> 4) << (2 * g), lower | (step + 32 & 15) << (4 * g)
        factor = inverse(d * v.float32(step))
        q, r = v.f32x16_load(at) * factor, v.f32x16_load(at + 64) * factor
        store_nibbles(block + VALUES + 16 * g, nearest_uneven(q), nearest_uneven(r))
    v.st_u16(block + 2, upper)
    v.st_i32(block + 4, lower)


tile = walk.tile(IQ4_XS, ACTIVATIONS, add_block)
dot = walk.dot(IQ4_XS, ACTIVATIONS, add_in_place, 2, 0.0)
panel = word_by_word(136)
register(walk.weight(IQ4_XS, ACTIVATIONS, panel, tile, dot, decode, encode, build_put_block))

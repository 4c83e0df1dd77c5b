"""q3_K: 3-bit values in the groups of sub16.py (ggml-common.h:block_q3_K).

Block, 110 bytes: third bits u8 [32] | low two bits u8 [64] | scales, 12 bytes | d f16. Bit 4 * half
+ j of byte i of the third bits belongs to value 32 * j + i of a half. Values are offset by 4, so a
minimum is four times its scale, and dmin is d.

The 12 bytes are three words of four bytes; scales are offset by 32:
s0: low four bits of scales 0..3 and, as high nibbles, of scales 8..11
s1: low four bits of scales 4..7 and, as high nibbles, of scales 12..15
s2: top two bits of scale 4 * i + c, in byte c at bit 2 * i

Panel block: d f16 [LANES], words s0 s1 s2 [3][LANES] | third bits interleaved with low bits of the
first half [8][2][LANES] | low bits of the second half [8][LANES]
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.interleave import interleave_halves, interleave_words
from ggml_cpu.blocks.panels import WORD
from ggml_cpu.blocks.rounding import inverse
from ggml_cpu.blocks.search import largest_scale, levels_around, refine_scale
from ggml_cpu.blocks.sub16 import weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_K import ACTIVATIONS

LOW, SCALES, D = 32, 96, 108  # offsets in a block
FIRST, SECOND = 3 * WORD, 19 * WORD
FOUR_BITS, TWO_BITS, THIRD_BIT = 0x0F0F0F0F, 0x03030303, 0x04040404


@fn
def pack(src, stride, rows, d, dst):
    interleave_words(src + SCALES, stride, rows, 3, dst, WORD)
    interleave_words(src, stride, rows, 8, dst + FIRST, 2 * WORD)
    interleave_words(src + LOW, stride, rows, 8, dst + FIRST + WORD, 2 * WORD)
    interleave_words(src + LOW + 32, stride, rows, 8, dst + SECOND, WORD)
    interleave_halves(src + D, stride, rows, d)


@fn
def gather(d, panel, r, dst):
    w = panel + 4 * r
    for i in range(8):
        v.st_i32(dst + 4 * i, v.ld_i32(w + FIRST + 2 * WORD * i))
        v.st_i32(dst + LOW + 4 * i, v.ld_i32(w + FIRST + 2 * WORD * i + WORD))
        v.st_i32(dst + LOW + 32 + 4 * i, v.ld_i32(w + SECOND + WORD * i))
    for i in range(3):
        v.st_i32(dst + SCALES + 4 * i, v.ld_i32(w + WORD * i))
    v.st_u16(dst + D, v.ld_u16(d + 2 * r))


@fn
def load_word(w, half, j, i):
    first = w + FIRST + 2 * WORD * i
    low = v.i32_load(w + SECOND + WORD * i if half else first + WORD)
    third = (v.i32_load(first) >> (4 * half + j)) << 2
    return ((low >> (2 * j)) & TWO_BITS) | (third & THIRD_BIT)


@fn
def six_bits(low, top, i):
    """Return scales 4 * i to 4 * i + 3, one per byte, from the word of low bits and from s2."""
    return ((low >> (4 * (i >> 1))) & FOUR_BITS) | (((top >> (2 * i)) & TWO_BITS) << 4)


@fn
def with_minima(scales):
    """Return scales as signed bytes, and their minima: four times the scales."""
    centred = scales - 32
    return centred, centred << 2


@fn
def scale_words(w, i):
    words = six_bits(v.i32_load(w + WORD * (i & 1)), v.i32_load(w + 2 * WORD), i)
    scales, minima = with_minima(v.as_i8(words))
    return v.as_i32(scales), v.as_i32(minima)


@fn
def factors(d, w):
    factor = v.f16_load(d)
    return factor, factor


@fn
def load_values(block, j):
    bits = v.as_i16(v.i8x32_load(block))
    third = (v.as_i8(v.concat(bits, bits >> 4)) >> j) << 2
    return ((v.i8x64_load(block + LOW) >> (2 * j)) & 3) | (third & 4)


@fn
def load_scales(block):
    s0, s1, s2 = (v.ld_u32(block + SCALES), v.ld_u32(block + SCALES + 4),
                  v.ld_u32(block + SCALES + 8))  # fmt: skip
    first = six_bits(s0, s2, 0) | six_bits(s1, s2, 1) << 32
    last = six_bits(s0, s2, 2) | six_bits(s1, s2, 3) << 32
    return with_minima(v.as_i8(v.set_lane(v.i64x2(first), 1, last)))


@fn
def load_factors(block):
    d = v.ld_f16(block + D)
    return d, d


@fn
def store_scale(scales, g, six):
    low, high = scales + g % 8, scales + 8 + g % 4
    v.st_i8(low, v.ld_u8(low) | (six & 15) << (4 * (g // 8)))
    v.st_i8(high, v.ld_u8(high) | (six >> 4) << (2 * (g // 4)))


@fn
def load_scale(scales, g):
    low = v.ld_u8(scales + g % 8) >> (4 * (g // 8)) & 15
    return (low | (v.ld_u8(scales + 8 + g % 4) >> (2 * (g // 4)) & 3) << 4) - 32


@fn
def find_scale(x, spare):
    return refine_scale(x, 4, spare)


find_largest = largest_scale(find_scale, 16)


@fn
def store_scales(x, block):
    """Store d and the scales of a block; the search uses the block's first bytes as scratch."""
    top = find_largest(x, block)
    factor = v.float32(-32.0) / top if top != 0.0 else v.float32(0.0)
    v.st_f16(block + D, inverse(factor))
    for i in range(12):
        v.st_i8(block + SCALES + i, 0)
    if top != 0.0:
        for g in range(16):
            scale = int(v.rintf(factor * find_scale(x + 64 * g, block)))
            store_scale(block + SCALES, g, max(-32, min(31, scale)) + 32)


@fn
def levels(x, block, g):
    scale = v.ld_f16(block + D) * v.float32(load_scale(block + SCALES, g))
    return levels_around(v.f32x16_load(x + 64 * g), scale, 4.0)


@fn
def encode(x, block):
    store_scales(x, block)
    for part in range(2):
        third = v.i32x16(0)
        for half in range(2):
            packed = v.i32x16(0)
            for j in range(4):
                q = levels(x, block, 8 * half + 2 * j + part)
                packed = packed | ((q & 3) << (2 * j))
                third = third | ((q >> 2) << (4 * half + j))
            v.store(block + LOW + 32 * half + 16 * part, v.to_i8(packed))
        v.store(block + 16 * part, v.to_i8(third))


register(
    weight(
        "q3_K",
        7,
        ACTIVATIONS,
        (pack, gather),
        load_word,
        scale_words,
        factors,
        load_values,
        load_scales,
        load_factors,
        encode,
        offset=4,
    )
)

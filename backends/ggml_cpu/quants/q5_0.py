"""q5_0: blocks of 32 values of 5 bits, offset by 16, with one scale (ggml-common.h:block_q5_0).

In place, 22 bytes: scale f16 | fifth bits, bit i that of value i | u8 [16] as in q4_0
Panel block: scale f16 [LANES] | fifth bits by word [LANES] | words [4][LANES]

Fifth bits by word: bit 8 * c + s is that of byte c of word s, where words 0..3 are the low nibbles
and 4..7 the high ones; one shift brings a word's four bits above their nibbles.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quants.activations import Q8_0, Q8_0_BYTES, Q8_0_SCALE, Q8_0_SUM8
from ggml_cpu.quants.interleave import interleave_halves, interleave_words
from ggml_cpu.quants.weight import Weight, register
from ggml_cpu.target import LANES
from ggml_py.types import BY_NAME

BYTES = 22
WORD = 4 * LANES
FIFTH = 2 * LANES
VALUES = FIFTH + WORD
PANEL = BYTES * LANES
AHEAD = 4096  # bytes to prefetch ahead, in place
LOW_BITS = 0x01010101
SPREAD = 0x00204081  # times four bits: bit c also at 8 * c, under LOW_BITS
GATHER = 0x01020408  # the way back: bits 8 * c to 24 + c
EACH_BIT = 0x8040201008040201 - (1 << 64)  # byte i has bit i


@fn
def bits_by_word(bits):
    """A vector of fifth bits in the order of values, to that of a panel."""
    result = (bits & 15) * SPREAD & LOW_BITS
    for s in range(1, 8):
        result = result | (((bits >> (4 * s)) & 15) * SPREAD & LOW_BITS) << s
    return result


@fn
def bits_by_value(bits):
    """The fifth bits of one row of a panel in the order of values again."""
    result = 0
    for s in range(8):
        result |= (((bits >> s) & LOW_BITS) * GATHER >> 24 & 15) << (4 * s)
    return result


@fn
def five_bits(packed, bits, i):
    """Values of the low and the high nibbles of word i, for fifth bits by word."""
    low = (packed & 15) | (v.as_i8((bits << 4) >> i) & 16)
    return low, ((packed >> 4) & 15) | (v.as_i8(bits >> i) & 16)


@fn
def block_values(bits, nibbles):
    """The 32 values of a block in place, 0..31; addresses of its fifth bits and of its nibbles."""
    packed = v.i8x16_load(nibbles)
    eight_times = v.repeat_each(v.low(v.as_i8(v.i32x2(v.ld_i32(bits)))), 8)
    fifth = v.select(eight_times & v.as_i8(v.i64x4(EACH_BIT)) != 0, v.i8x32(16), 0)
    return v.concat(packed & 15, (packed >> 4) & 15) | fifth


@fn
def unpack(src, stride, rows, n, dst):
    for _ in range(n // 32):
        interleave_halves(src, stride, rows, dst)
        interleave_words(src + 2, stride, rows, 5, dst + FIFTH, WORD)
        v.store(dst + FIFTH, bits_by_word(v.i32_load(dst + FIFTH)))
        src += BYTES
        dst += PANEL


@fn
def row(panel, r, n, dst):
    for _ in range(n // 32):
        v.st_u16(dst, v.ld_u16(panel + 2 * r))
        v.st_i32(dst + 2, bits_by_value(v.ld_u32(panel + FIFTH + 4 * r)))
        for i in range(4):
            v.st_i32(dst + 6 + 4 * i, v.ld_i32(panel + VALUES + i * WORD + 4 * r))
        panel += PANEL
        dst += BYTES


def tile(width):
    @fn
    def multiply(w, a, steps, out):
        sums = v.f32_regs(width)
        for _ in range(steps):
            dots = v.i32_regs(width)
            for t in range(width):
                dots[t] = v.i32_bcast(a + Q8_0_SUM8 * width + 4 * t) << 1
            bits = v.i32_load(w + FIFTH)
            for i in range(4):
                low, high = five_bits(v.i8_load(w + VALUES + i * WORD), bits, i)
                at = a + 4 * i * width
                for t in range(width):
                    x = v.as_i8(v.i32_bcast(at + 4 * t))
                    y = v.as_i8(v.i32_bcast(at + 16 * width + 4 * t))
                    dots[t] = v.dot4(v.dot4(dots[t], low, x), high, y)
            scale = v.f16_load(w)
            for t in range(width):
                both = scale * v.f32_bcast(a + Q8_0_SCALE * width + 4 * t)
                sums[t] = v.fma(v.to_f32(dots[t]), both, sums[t])
            w += PANEL
            a += Q8_0_BYTES * width
        for t in range(width):
            v.store(out + WORD * t, sums[t])

    return multiply


@fn
def block(w, a, total):
    """total + one block in place times one of a column."""
    start = v.set_lane(v.i32x8(0), 0, 2 * v.ld_i32(a + Q8_0_SUM8))
    dots = v.dot4(start, block_values(w + 2, w + 6), v.i8x32_load(a))
    return v.fma(v.ld_f16(w) * v.ld_f32(a + Q8_0_SCALE), v.to_f32(dots), total)


@fn
def dot(src, stride, rows, a, n, out):
    even = v.f32x8(0.0)
    odd = v.f32x8(0.0)
    for _ in range(n // 64):
        v.prefetch_nta(src + AHEAD)
        even = block(src, a, even)
        odd = block(src + BYTES, a + Q8_0_BYTES, odd)
        src += 2 * BYTES
        a += 2 * Q8_0_BYTES
    if n % 64:
        even = block(src, a, even)
    v.st_f32(out, v.vsum(even + odd))


@fn
def dequantize(src, n, dst):
    for _ in range(n // 32):
        scale = v.ld_f16(src)
        values = v.to_i32(block_values(src + 2, src + 6) - 16)
        v.store(dst, v.to_f32(values) * scale)
        src += BYTES
        dst += 128


register(Weight(BY_NAME["q5_0"], Q8_0, LANES, PANEL, unpack, tile, dot, 1, dequantize, row))

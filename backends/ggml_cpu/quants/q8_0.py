"""q8_0: blocks of 32 int8 with one scale (ggml-common.h:block_q8_0).

In place, 34 bytes: scale f16 | i8 [32]
Panel block: scale f16 [LANES] | words [8][LANES], bytes XOR I8_BIAS
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quants.activations import Q8_0, Q8_0_BIAS, Q8_0_BYTES, Q8_0_SCALE
from ggml_cpu.quants.interleave import interleave_halves, interleaver
from ggml_cpu.quants.weight import Weight, register
from ggml_cpu.target import I8_BIAS, LANES
from ggml_py.types import BY_NAME

BYTES = 34
WORD = 4 * LANES
VALUES = 2 * LANES
PANEL = BYTES * LANES
BIAS_WORD = I8_BIAS * 0x01010101
AHEAD = 4096  # bytes to prefetch ahead, in place


@fn
def biased_words(address):
    return v.i32_load(address) ^ BIAS_WORD


@fn
def biased_words_n(address, n):
    return v.i32_load_n(address, n) ^ BIAS_WORD


interleave_biased = interleaver(biased_words, biased_words_n, 4)


@fn
def unpack(src, stride, rows, n, dst):
    for _ in range(n // 32):
        interleave_halves(src, stride, rows, dst)
        interleave_biased(src + 2, stride, rows, 8, dst + VALUES, WORD)
        src += BYTES
        dst += PANEL


@fn
def row(panel, r, n, dst):
    for _ in range(n // 32):
        v.st_u16(dst, v.ld_u16(panel + 2 * r))
        for i in range(8):
            v.st_i32(dst + 2 + 4 * i, v.ld_i32(panel + VALUES + i * WORD + 4 * r) ^ BIAS_WORD)
        panel += PANEL
        dst += BYTES


def tile(width):
    @fn
    def multiply(w, a, steps, out):
        sums = v.f32_regs(width)
        for _ in range(steps):
            dots = v.i32_regs(width)
            for t in range(width):
                dots[t] = v.i32_bcast(a + Q8_0_BIAS * width + 4 * t)
            for i in range(8):
                values = v.i8_load(w + VALUES + i * WORD)
                for t in range(width):
                    x = v.as_i8(v.i32_bcast(a + 4 * (i * width + t)))
                    dots[t] = v.dot4_biased(dots[t], values, x)
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
    start = v.set_lane(v.i32x8(0), 0, v.ld_i32(a + Q8_0_BIAS))
    dots = v.dot4_biased(start, v.i8x32_load(w + 2) ^ I8_BIAS, v.i8x32_load(a))
    return v.fma(v.ld_f16(w) * v.ld_f32(a + Q8_0_SCALE), v.to_f32(dots), total)


@fn
def dot(src, stride, rows, a, n, out):
    even = v.f32x8(0.0)
    odd = v.f32x8(0.0)
    for _ in range(n // 64):
        v.prefetch_nta(src + AHEAD)
        v.prefetch_nta(src + AHEAD + 64)
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
        for i in range(0, 32, 16):
            values = v.to_f32(v.to_i32(v.i8x16_load(src + 2 + i)))
            v.store(dst + 4 * i, values * scale)
        src += BYTES
        dst += 128


register(Weight(BY_NAME["q8_0"], Q8_0, LANES, PANEL, unpack, tile, dot, 1, dequantize, row))

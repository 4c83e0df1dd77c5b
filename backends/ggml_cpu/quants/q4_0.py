"""q4_0: blocks of 32 values of 4 bits, offset by 8, with one scale (ggml-common.h:block_q4_0).

In place, 18 bytes: scale f16 | u8 [16], low nibbles are values 0..15, high ones 16..31
Panel block: scale f16 [LANES] | words [4][LANES]
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quants.activations import Q8_0, Q8_0_BYTES, Q8_0_SCALE, Q8_0_SUM8
from ggml_cpu.quants.interleave import interleave_halves, interleave_words
from ggml_cpu.quants.weight import Weight, register
from ggml_cpu.target import LANES
from ggml_py.types import BY_NAME

BYTES = 18
WORD = 4 * LANES
VALUES = 2 * LANES
PANEL = BYTES * LANES
AHEAD = 4096  # bytes to prefetch ahead, in place


@fn
def unpack(src, stride, rows, n, dst):
    for _ in range(n // 32):
        interleave_halves(src, stride, rows, dst)
        interleave_words(src + 2, stride, rows, 4, dst + VALUES, WORD)
        src += BYTES
        dst += PANEL


@fn
def row(panel, r, n, dst):
    for _ in range(n // 32):
        v.st_u16(dst, v.ld_u16(panel + 2 * r))
        for i in range(4):
            v.st_i32(dst + 2 + 4 * i, v.ld_i32(panel + VALUES + i * WORD + 4 * r))
        panel += PANEL
        dst += BYTES


def tile(width):
    @fn
    def multiply(w, a, steps, out):
        sums = v.f32_regs(width)
        for _ in range(steps):
            dots = v.i32_regs(width)
            for t in range(width):
                dots[t] = v.i32_bcast(a + Q8_0_SUM8 * width + 4 * t)
            for i in range(4):
                values = v.i8_load(w + VALUES + i * WORD)
                low = values & 15
                high = (values >> 4) & 15
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
    packed = v.i8x16_load(w + 2)
    values = v.concat(packed & 15, (packed >> 4) & 15)
    start = v.set_lane(v.i32x8(0), 0, v.ld_i32(a + Q8_0_SUM8))
    dots = v.dot4(start, values, v.i8x32_load(a))
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
        packed = v.zext_i32(v.i8x16_load(src + 2))
        scale = v.ld_f16(src)
        v.store(dst, (v.to_f32(packed & 15) - 8.0) * scale)
        v.store(dst + 64, (v.to_f32(packed >> 4) - 8.0) * scale)
        src += BYTES
        dst += 128


register(Weight(BY_NAME["q4_0"], Q8_0, LANES, PANEL, unpack, tile, dot, 1, dequantize, row))

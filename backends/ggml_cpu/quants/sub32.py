"""What q4_K and q5_K share: blocks of 256 in eight sub-blocks of 32 with 6-bit scales and minima.

In place a block starts with d f16 | dmin f16 | scales, 12 bytes; a value is d * scale * q - dmin *
min. The 12 bytes are three words s0 s1 s2 of four bytes (ggml-quants.c:get_scale_min_k4):
s0 scales 0..3 and, above their six bits, the top two of scales 4..7; s1 the minima alike; s2 the
low four bits of scales 4..7 and of minima 4..7. In a panel the block is kept word by word: word i
of LANES rows is one vector, at i * WORD.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quants.activations import Q8_K, Q8_K_BYTES, Q8_K_SCALE, Q8_K_SUM32
from ggml_cpu.quants.interleave import word_by_word
from ggml_cpu.quants.weight import Weight
from ggml_cpu.target import LANES
from ggml_py.types import GGMLType

Function = Callable[..., Any]
WORD = 4 * LANES
SIX_BITS, FOUR_BITS, TWO_BITS = 0x3F3F3F3F, 0x0F0F0F0F, 0x30303030
AHEAD = 4096  # bytes to prefetch ahead, in place


@fn
def later(s, s2):
    """Scales (or minima) 4..7, one a byte, from s0 (s1) and the half of s2 that belongs to them."""
    return (s2 & FOUR_BITS) | ((s >> 2) & TWO_BITS)


@fn
def scales_of(block):
    """The eight scales of a block in place, one a byte of an int64."""
    s0 = v.ld_u32(block + 4)
    return (s0 & SIX_BITS) | (later(s0, v.ld_u32(block + 12)) << 32)


@fn
def minima_of(block):
    s1 = v.ld_u32(block + 8)
    return (s1 & SIX_BITS) | (later(s1, v.ld_u32(block + 12) >> 4) << 32)


@fn
def bytes_of(eight):
    """The bytes of an int64, as i8x8."""
    return v.low(v.as_i8(v.i64x2(eight)))


@fn
def even_bytes(words):
    """Bytes 0 and 2 of each word, as i16."""
    return v.as_i16(words & 0x00FF00FF)


def _tile(value_of: Function, panel_bytes: int) -> Callable[[int], Function]:
    def tile(width):
        @fn
        def add_32(w, a, j, high, scale, sums):
            """sums[t] += scale * dot over the low or the high values of chunk j."""
            dots = v.i32_regs(width)
            for i in range(8):
                values = value_of(w, j, high, i)
                at = a + 4 * width * (16 * j + 8 * high + i)
                for t in range(width):
                    dots[t] = v.dot4(dots[t], values, v.as_i8(v.i32_bcast(at + 4 * t)))
            for t in range(width):
                sums[t] = sums[t] + dots[t] * scale

        @fn
        def multiply(w, a, steps, out):
            for t in range(width):
                v.store(out + WORD * t, v.f32(0.0))
            for _ in range(steps):
                sums = v.i32_regs(width)
                both, s0 = v.i32_load(w), v.i32_load(w + WORD)
                s1, s2 = v.i32_load(w + 2 * WORD), v.i32_load(w + 3 * WORD)
                scales = s0 & SIX_BITS
                for j in range(4):
                    if j == 2:
                        scales = later(s0, s2)
                    add_32(w, a, j, 0, scales & 255, sums)
                    add_32(w, a, j, 1, (scales >> 8) & 255, sums)
                    scales = scales >> 16
                minima = v.i32_regs(width)
                first, second = s1 & SIX_BITS, later(s1, s2 >> 4)
                for i in range(4):
                    pair = even_bytes((first if i < 2 else second) >> (8 * (i % 2)))
                    at = a + Q8_K_SUM32 * width + 4 * width * i
                    for t in range(width):
                        x = v.as_i16(v.i32_bcast(at + 4 * t))
                        minima[t] = v.dot2(minima[t], pair, x)
                d = v.f16_to_f32(v.to_i16(both))
                dmin = v.f16_to_f32(v.to_i16(both >> 16))
                for t in range(width):
                    x = v.to_f32(sums[t]) * d - v.to_f32(minima[t]) * dmin
                    scale = v.f32_bcast(a + Q8_K_SCALE * width + 4 * t)
                    v.store(out + WORD * t, v.fma(scale, x, v.f32_load(out + WORD * t)))
                w += panel_bytes
                a += Q8_K_BYTES * width

        return multiply

    return tile


def _dot(quads_of: Function, size: int) -> Function:
    @fn
    def add_half(block, a, half, scales, sums):
        """sums + scale * dot over four sub-blocks of a block in place, 128 values."""
        low, high = quads_of(block, half)
        x = v.concat(v.i8x32_load(a), v.i8x32_load(a + 64))
        y = v.concat(v.i8x32_load(a + 32), v.i8x32_load(a + 96))
        zero = v.i32x16(0)
        low_scale = v.shuffle(scales, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2)
        high_scale = v.shuffle(scales, 1, 1, 1, 1, 1, 1, 1, 1, 3, 3, 3, 3, 3, 3, 3, 3)
        sums = sums + v.dot4(zero, low, x) * low_scale
        return sums + v.dot4(zero, high, y) * high_scale

    @fn
    def dot(src, stride, rows, a, n, out):
        total = v.f32x16(0.0)
        less = v.f32x4(0.0)
        for _ in range(n // 256):
            for i in range(0, size, 64):
                v.prefetch_nta(src + AHEAD + i)
            scales = v.zext_i32(bytes_of(scales_of(src)))
            sums = add_half(src, a, 0, v.low(scales), v.i32x16(0))
            sums = add_half(src, a + 128, 1, v.high(scales), sums)
            minima = v.shuffle(v.zext_i16(bytes_of(minima_of(src))), 0, 2, 1, 3, 4, 6, 5, 7)
            subtract = v.dot2(v.i32x4(0), minima, v.i16x8_load(a + Q8_K_SUM32))
            scale = v.ld_f32(a + Q8_K_SCALE)
            total = v.fma(v.ld_f16(src) * scale, v.to_f32(sums), total)
            less = v.fma(v.ld_f16(src + 2) * scale, v.to_f32(subtract), less)
            src += size
            a += Q8_K_BYTES
        v.st_f32(out, v.vsum(total) - v.vsum(less))

    return dot


def _dequantize(quads_of: Function, size: int) -> Function:
    @fn
    def put(values, dst, block, s):
        """32 values of sub-block s."""
        d = v.ld_f16(block) * v.float32((scales_of(block) >> (8 * s)) & 255)
        minimum = v.ld_f16(block + 2) * v.float32((minima_of(block) >> (8 * s)) & 255)
        x = v.to_f32(v.zext_i32(values))
        v.store(dst + 128 * s, x * d - minimum)

    @fn
    def dequantize(src, n, dst):
        for _ in range(n // 256):
            for half in range(2):
                low, high = quads_of(src, half)
                put(v.low(low), dst, src, 4 * half)
                put(v.low(high), dst, src, 4 * half + 1)
                put(v.high(low), dst, src, 4 * half + 2)
                put(v.high(high), dst, src, 4 * half + 3)
            src += size
            dst += 1024

    return dequantize


def weight(kind: GGMLType, value_of: Function, quads_of: Function) -> Weight:
    """A weight type of this family.

    value_of(w, j, high, i): from a panel, word i of the 32 low or high values of 64-chunk j.
    quads_of(block, half): from a block in place, sub-blocks 0, 2 and sub-blocks 1, 3 of a half.
    """
    size = kind.type_size
    unpack, row = word_by_word(kind)
    return Weight(
        kind, Q8_K, LANES, size * LANES, unpack, _tile(value_of, size * LANES),
        _dot(quads_of, size), 1, _dequantize(quads_of, size), row,
    )  # fmt: skip

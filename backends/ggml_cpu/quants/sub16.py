"""What q2_K and q3_K share: blocks of 256 in sixteen groups of 16 with a scale and a minimum each.

A value is d * scale * q - dmin * minimum with q of up to three bits. Two bits of q come from 64
bytes, 32 for each half of 128 values; in a half, bits 2 * j and 2 * j + 1 of byte i are of value
32 * j + i. So group 8 * half + 2 * j + s is in the bytes from 16 * s on: words 4 * s to 4 * s + 3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quants.activations import Q8_K, Q8_K_BYTES, Q8_K_SCALE, Q8_K_SUM16
from ggml_cpu.quants.weight import Weight
from ggml_cpu.target import LANES
from ggml_py.types import GGMLType

Function = Callable[..., Any]
WORD = 4 * LANES
AHEAD = 4096  # bytes to prefetch ahead, in place


@fn
def scale_byte(words, i):
    """Signed byte i of each word, as i32."""
    return v.asr(words << (24 - 8 * i), 24)


def group_sums(width: int) -> Function:
    """add(words, a, i, less): less[t] += signed bytes of words * sums of groups 4 * i .. + 3."""

    @fn
    def add(words, a, i, less):
        pairs = v.as_i16(words)
        even, odd = v.asr(pairs << 8, 8), v.asr(pairs, 8)
        at = a + Q8_K_SUM16 * width + 8 * width * i
        for t in range(width):
            x = v.as_i16(v.i32_bcast(at + 4 * t))
            y = v.as_i16(v.i32_bcast(at + 4 * (width + t)))
            less[t] = v.dot2(v.dot2(less[t], even, x), odd, y)

    return add


def _tile(
    word_of: Function, scale_words: Function, factors: Function, panel_bytes: int
) -> Callable[[int], Function]:
    def tile(width):
        subtract = group_sums(width)

        @fn
        def add_16(w, a, half, j, s, scale, sums):
            """sums[t] += scale * dot over a group. Dots fit i16: a product of pairs is cheapest."""
            dots = v.i32_regs(width)
            for i in range(4):
                values = v.as_i8(word_of(w, half, j, 4 * s + i))
                at = a + 4 * width * (32 * half + 8 * j + 4 * s + i)
                for t in range(width):
                    dots[t] = v.dot4(dots[t], values, v.as_i8(v.i32_bcast(at + 4 * t)))
            pair = v.as_i16(scale & 0xFFFF)
            for t in range(width):
                sums[t] = v.dot2(sums[t], v.as_i16(dots[t]), pair)

        @fn
        def add_half(w, a, half, sums, less):
            first, first_minima = scale_words(w, 2 * half)
            second, second_minima = scale_words(w, 2 * half + 1)
            for s in range(2):
                add_16(w, a, half, 0, s, scale_byte(first, s), sums)
                add_16(w, a, half, 1, s, scale_byte(first, s + 2), sums)
                add_16(w, a, half, 2, s, scale_byte(second, s), sums)
                add_16(w, a, half, 3, s, scale_byte(second, s + 2), sums)
            subtract(first_minima, a, 2 * half, less)
            subtract(second_minima, a, 2 * half + 1, less)

        @fn
        def multiply(w, a, steps, out):
            for t in range(width):
                v.store(out + WORD * t, v.f32(0.0))
            for _ in range(steps):
                sums, less = v.i32_regs(width), v.i32_regs(width)
                add_half(w, a, 0, sums, less)
                add_half(w, a, 1, sums, less)
                d, dmin = factors(w)
                for t in range(width):
                    x = v.to_f32(sums[t]) * d - v.to_f32(less[t]) * dmin
                    scale = v.f32_bcast(a + Q8_K_SCALE * width + 4 * t)
                    v.store(out + WORD * t, v.fma(scale, x, v.f32_load(out + WORD * t)))
                w += panel_bytes
                a += Q8_K_BYTES * width

        return multiply

    return tile


def _dot(values_of: Function, scales_of: Function, factors_of: Function, size: int) -> Function:
    @fn
    def add_64(block, a, j, scales, sums):
        """sums + scale * dot over groups 2 * j and 2 * j + 1 of both halves."""
        x = v.concat(v.i8x32_load(a + 32 * j), v.i8x32_load(a + 32 * j + 128))
        dots = v.dot4(v.i32x16(0), values_of(block, j), x)
        return v.dot2(sums, v.as_i16(dots), v.as_i16(v.repeat_each(scales, 4)))

    @fn
    def dot(src, stride, rows, a, n, out):
        total = v.f32x16(0.0)
        less = v.f32x8(0.0)
        for _ in range(n // 256):
            for i in range(0, size, 64):
                v.prefetch_nta(src + AHEAD + i)
            scales, minima = scales_of(src)
            pairs = v.zext_i32(v.to_i16(scales))
            sums = add_64(src, a, 0, v.shuffle(pairs, 0, 1, 8, 9), v.i32x16(0))
            sums = add_64(src, a, 1, v.shuffle(pairs, 2, 3, 10, 11), sums)
            sums = add_64(src, a, 2, v.shuffle(pairs, 4, 5, 12, 13), sums)
            sums = add_64(src, a, 3, v.shuffle(pairs, 6, 7, 14, 15), sums)
            ordered = v.shuffle(minima, 0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15)
            offset = v.dot2(v.i32x8(0), v.to_i16(ordered), v.i16x16_load(a + Q8_K_SUM16))
            d, dmin = factors_of(src)
            scale = v.ld_f32(a + Q8_K_SCALE)
            total = v.fma(d * scale, v.to_f32(sums), total)
            less = v.fma(dmin * scale, v.to_f32(offset), less)
            src += size
            a += Q8_K_BYTES
        v.st_f32(out, v.vsum(total) - v.vsum(less))

    return dot


def _dequantize(
    values_of: Function, scales_of: Function, factors_of: Function, size: int
) -> Function:
    @fn
    def put(values, dst, block, u):
        """16 values of group u."""
        d, dmin = factors_of(block)
        scales, minima = scales_of(block)
        x = v.to_f32(v.zext_i32(values)) * (d * v.float32(v.lane(scales, u)))
        v.store(dst + 64 * u, x - dmin * v.float32(v.lane(minima, u)))

    @fn
    def dequantize(src, n, dst):
        for _ in range(n // 256):
            for j in range(4):
                values = values_of(src, j)
                put(v.quarter(values, 0), dst, src, 2 * j)
                put(v.quarter(values, 1), dst, src, 2 * j + 1)
                put(v.quarter(values, 2), dst, src, 2 * j + 8)
                put(v.quarter(values, 3), dst, src, 2 * j + 9)
            src += size
            dst += 1024

    return dequantize


def weight(
    kind: GGMLType, unpack: Function, row: Function, word_of: Function, scale_words: Function,
    factors: Function, values_of: Function, scales_of: Function, factors_of: Function,
) -> Weight:  # fmt: skip
    """A weight type of this family. Minima, like scales, are signed bytes.

    Of a panel:
    word_of(w, half, j, i): the values in word i of a half at shift j, one a byte.
    scale_words(w, i): scales and minima of groups 4 * i to 4 * i + 3.
    factors(w): d and dmin.
    Of a block in place:
    values_of(block, j): the values at shift j, 32 of each half.
    scales_of(block): all scales and minima, i8x16.
    factors_of(block): d and dmin.
    """
    size = kind.type_size
    in_place = (values_of, scales_of, factors_of, size)
    return Weight(
        kind, Q8_K, LANES, size * LANES, unpack,
        _tile(word_of, scale_words, factors, size * LANES),
        _dot(*in_place), 1, _dequantize(*in_place), row,
    )  # fmt: skip

"""q4_1: blocks of 32 values of 4 bits with a scale and a minimum (ggml-common.h:block_q4_1).

In place, 20 bytes: scale f16 | minimum f16 | u8 [16] as in q4_0
Panel block: the block word by word, [5][LANES]

A value is scale * q + minimum, so a product is scale * dot + minimum * (sum of the activations).
q5_1 only has other values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quants.activations import Q8_0, Q8_0_BYTES, Q8_0_SCALE, Q8_0_SUM
from ggml_cpu.quants.interleave import word_by_word
from ggml_cpu.quants.weight import Weight, register
from ggml_cpu.target import LANES
from ggml_py.types import BY_NAME, GGMLType

Function = Callable[..., Any]
WORD = 4 * LANES
AHEAD = 4096  # bytes to prefetch ahead, in place


def _tile(nibbles_of: Function, panel_bytes: int) -> Callable[[int], Function]:
    def tile(width):
        @fn
        def multiply(w, a, steps, out):
            sums = v.f32_regs(width)
            for _ in range(steps):
                dots = v.i32_regs(width)
                for i in range(4):
                    low, high = nibbles_of(w, i)
                    at = a + 4 * i * width
                    for t in range(width):
                        x = v.as_i8(v.i32_bcast(at + 4 * t))
                        y = v.as_i8(v.i32_bcast(at + 16 * width + 4 * t))
                        dots[t] = v.dot4(v.dot4(dots[t], low, x), high, y)
                both = v.i32_load(w)
                scale = v.f16_to_f32(v.to_i16(both))
                minimum = v.f16_to_f32(v.to_i16(both >> 16))
                for t in range(width):
                    total = v.f32_bcast(a + Q8_0_SUM * width + 4 * t)
                    d = scale * v.f32_bcast(a + Q8_0_SCALE * width + 4 * t)
                    sums[t] = v.fma(v.to_f32(dots[t]), d, v.fma(minimum, total, sums[t]))
                w += panel_bytes
                a += Q8_0_BYTES * width
            for t in range(width):
                v.store(out + WORD * t, sums[t])

        return multiply

    return tile


def _dot(values_of: Function, size: int) -> Function:
    @fn
    def block(w, a, total):
        """total + the dot of one block in place with one of a column."""
        dots = v.dot4(v.i32x8(0), values_of(w), v.i8x32_load(a))
        return v.fma(v.ld_f16(w) * v.ld_f32(a + Q8_0_SCALE), v.to_f32(dots), total)

    @fn
    def minimum(w, a):
        return v.ld_f16(w + 2) * v.ld_f32(a + Q8_0_SUM)

    @fn
    def dot(src, stride, rows, a, n, out):
        even = v.f32x8(0.0)
        odd = v.f32x8(0.0)
        more = v.float32(0)
        for _ in range(n // 64):
            v.prefetch_nta(src + AHEAD)
            even = block(src, a, even)
            odd = block(src + size, a + Q8_0_BYTES, odd)
            more += minimum(src, a) + minimum(src + size, a + Q8_0_BYTES)
            src += 2 * size
            a += 2 * Q8_0_BYTES
        if n % 64:
            even = block(src, a, even)
            more += minimum(src, a)
        v.st_f32(out, v.vsum(even + odd) + more)

    return dot


def _dequantize(values_of: Function, size: int) -> Function:
    @fn
    def dequantize(src, n, dst):
        for _ in range(n // 32):
            values = v.to_f32(v.zext_i32(values_of(src)))
            v.store(dst, values * v.ld_f16(src) + v.ld_f16(src + 2))
            src += size
            dst += 128

    return dequantize


def weight(
    kind: GGMLType, nibbles_of: Function, values_of: Function, unpack: Function, row: Function
) -> Weight:
    """A weight type with a scale and a minimum at the start of its blocks of 32.

    nibbles_of(w, i): from a panel, the values in the low and in the high nibbles of word i.
    values_of(block): from a block in place, its 32 values.
    """
    size = kind.type_size
    panel_bytes = size * LANES
    return Weight(
        kind, Q8_0, LANES, panel_bytes, unpack, _tile(nibbles_of, panel_bytes),
        _dot(values_of, size), 1, _dequantize(values_of, size), row,
    )  # fmt: skip


@fn
def nibbles_of(w, i):
    packed = v.i8_load(w + WORD * (1 + i))
    return packed & 15, (packed >> 4) & 15


@fn
def values_of(block):
    packed = v.i8x16_load(block + 4)
    return v.concat(packed & 15, (packed >> 4) & 15)


Q4_1 = BY_NAME["q4_1"]
register(weight(Q4_1, nibbles_of, values_of, *word_by_word(Q4_1)))

"""What iq4_nl and mxfp4 share: blocks of 32 indices of 16 levels, with one scale.

In place: scale, 1 or 2 bytes | u8 [16], low nibbles are values 0..15, high ones 16..31
Panel block: scale [LANES] | words [4][LANES]

In panels the levels of a product have an offset, which makes them unsigned; it is a multiple of 8,
since the activations keep 8 times their sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quants.activations import Q8_0, Q8_0_BYTES, Q8_0_SCALE, Q8_0_SUM8
from ggml_cpu.quants.interleave import interleave_words
from ggml_cpu.quants.levels import both_levels, store_levels, table_of
from ggml_cpu.quants.weight import Weight
from ggml_cpu.target import I8_BIAS, LANES
from ggml_py.types import GGMLType

Function = Callable[..., Any]
WORD = 4 * LANES
AHEAD = 4096  # bytes to prefetch ahead, in place


def _unpack(size: int, copy_scale: Function) -> Function:
    scale_size = size - 16

    @fn
    def unpack(src, stride, rows, n, dst):
        for _ in range(n // 32):
            for r in range(LANES):
                copy_scale(src + min(r, rows - 1) * stride, dst + scale_size * r)
            interleave_words(src + scale_size, stride, rows, 4, dst + scale_size * LANES, WORD)
            src += size
            dst += size * LANES

    return unpack


def _row(size: int, copy_scale: Function) -> Function:
    scale_size = size - 16

    @fn
    def row(panel, r, n, dst):
        for _ in range(n // 32):
            copy_scale(panel + scale_size * r, dst)
            for i in range(4):
                word = panel + scale_size * LANES + i * WORD + 4 * r
                v.st_i32(dst + scale_size + 4 * i, v.ld_i32(word))
            panel += size * LANES
            dst += size

    return row


def _dot4(offset: int) -> Function:
    """The dot product for levels plus `offset`."""

    @fn
    def unsigned(total, x, y):
        return v.dot4(total, x, y)

    @fn
    def biased(total, x, y):
        return v.dot4_biased(total, x, y)

    return biased if offset == I8_BIAS else unsigned


def _tile(size: int, table: bytes, offset: int, scales_of: Function) -> Callable[[int], Function]:
    words, dot4 = (size - 16) * LANES, _dot4(offset)

    def tile(width):
        @fn
        def multiply(w, a, steps, out):
            levels = v.i8x16_load(v.table(table)) + offset
            sums = v.f32_regs(width)
            for _ in range(steps):
                dots = v.i32_regs(width)
                for t in range(width):
                    dots[t] = v.i32_bcast(a + Q8_0_SUM8 * width + 4 * t) * (offset // 8)
                for i in range(4):
                    low, high = both_levels(levels, v.i8_load(w + words + i * WORD))
                    at = a + 4 * i * width
                    for t in range(width):
                        x = v.as_i8(v.i32_bcast(at + 4 * t))
                        y = v.as_i8(v.i32_bcast(at + 16 * width + 4 * t))
                        dots[t] = dot4(dot4(dots[t], low, x), high, y)
                scale = scales_of(w)
                for t in range(width):
                    both = scale * v.f32_bcast(a + Q8_0_SCALE * width + 4 * t)
                    sums[t] = v.fma(v.to_f32(dots[t]), both, sums[t])
                w += size * LANES
                a += Q8_0_BYTES * width
            for t in range(width):
                v.store(out + WORD * t, sums[t])

        return multiply

    return tile


def _dot(size: int, table: bytes, scale_of: Function) -> Function:
    @fn
    def block(levels, w, a, total):
        """total + one block in place times one of a column."""
        low, high = both_levels(levels, v.i8x16_load(w + size - 16))
        dots = v.dot4_i8(v.i32x8(0), v.concat(low, high), v.i8x32_load(a))
        return v.fma(scale_of(w) * v.ld_f32(a + Q8_0_SCALE), v.to_f32(dots), total)

    @fn
    def dot(src, stride, rows, a, n, out):
        levels = v.i8x16_load(v.table(table))
        even = v.f32x8(0.0)
        odd = v.f32x8(0.0)
        for _ in range(n // 64):
            v.prefetch_nta(src + AHEAD)
            even = block(levels, src, a, even)
            odd = block(levels, src + size, a + Q8_0_BYTES, odd)
            src += 2 * size
            a += 2 * Q8_0_BYTES
        if n % 64:
            even = block(levels, src, a, even)
        v.st_f32(out, v.vsum(even + odd))

    return dot


def _dequantize(size: int, table: bytes, scale_of: Function) -> Function:
    @fn
    def dequantize(src, n, dst):
        for _ in range(n // 32):
            store_levels(src + size - 16, v.table(table), scale_of(src), dst)
            src += size
            dst += 128

    return dequantize


def weight(
    kind: GGMLType, levels: tuple[int, ...], offset: int, copy_scale: Function,
    scale_of: Function, scales_of: Function,
) -> Weight:  # fmt: skip
    """A weight type of such blocks.

    offset                 I8_BIAS, or what leaves the levels in 0..127
    copy_scale(src, dst)   one scale as it is stored
    scale_of(block)        the scale of a block in place
    scales_of(panel)       those of a block of a panel
    """
    size, table = kind.type_size, table_of(levels)
    return Weight(
        kind, Q8_0, LANES, size * LANES, _unpack(size, copy_scale),
        _tile(size, table, offset, scales_of), _dot(size, table, scale_of), 1,
        _dequantize(size, table, scale_of), _row(size, copy_scale),
    )  # fmt: skip

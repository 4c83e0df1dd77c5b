"""q5_1: 24 bytes: scale f16 | minimum f16 | fifth bits | low nibbles as in q4_0."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.rounding import (
    inverse,
    largest_of,
    smallest_of,
    store_fifth_bits,
    store_nibbles,
)
from ggml_cpu.kernel import fn

BYTES = 24


@fn
def level(x, low, factor):
    return v.to_i32((x - low) * factor + 0.5)


@fn
def quantize(src, n, dst):
    for _ in range(n // 32):
        x, y = v.f32x16_load(src), v.f32x16_load(src + 64)
        low = smallest_of(x, y)
        scale = v.float32((largest_of(x, y) - low) / v.float32(31.0))
        factor = inverse(scale)
        q, r = level(x, low, factor), level(y, low, factor)
        v.st_f16(dst, scale)
        v.st_f16(dst + 2, low)
        store_fifth_bits(dst + 4, q, r)
        store_nibbles(dst + 8, q, r)
        src += 128
        dst += BYTES


register("q5_1", quantize=quantize)

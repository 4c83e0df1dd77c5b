"""q4_0: 18 bytes: scale f16 | nibbles of values 0..15 below those of 16..31, each plus 8."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.rounding import extreme, inverse, store_nibbles
from ggml_cpu.kernel import fn

BYTES = 18


@fn
def level(x, factor):
    return v.vmin(v.to_i32(x * factor + 8.5), v.i32x16(15))


@fn
def quantize(src, n, dst):
    for _ in range(n // 32):
        x, y = v.f32x16_load(src), v.f32x16_load(src + 64)
        scale = v.float32(extreme(src, x, y) / v.float32(-8.0))
        factor = inverse(scale)
        v.st_f16(dst, scale)
        store_nibbles(dst + 2, level(x, factor), level(y, factor))
        src += 128
        dst += BYTES


register("q4_0", quantize=quantize)

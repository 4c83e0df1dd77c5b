"""q5_0: 22 bytes: scale f16 | fifth bits | low nibbles as in q4_0; values plus 16."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.rounding import extreme, inverse, store_fifth_bits, store_nibbles
from ggml_cpu.kernel import fn

BYTES = 22


@fn
def level(x, factor):
    return v.vmin(v.to_i32(x * factor + 16.5), v.i32x16(31))


@fn
def quantize(src, n, dst):
    for _ in range(n // 32):
        x, y = v.f32x16_load(src), v.f32x16_load(src + 64)
        scale = v.float32(extreme(src, x, y) / v.float32(-16.0))
        factor = inverse(scale)
        q, r = level(x, factor), level(y, factor)
        v.st_f16(dst, scale)
        store_fifth_bits(dst + 2, q, r)
        store_nibbles(dst + 6, q, r)
        src += 128
        dst += BYTES


register("q5_0", quantize=quantize)

"""q2_0: 18 bytes: scale f16 | 64 values of two bits plus 1, four neighbours to a byte."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.rounding import away, inverse
from ggml_cpu.kernel import fn
from ggml_cpu.quants.activations import largest

BYTES = 18


@fn
def quantize(src, n, dst):
    for _ in range(n // 64):
        scale = largest(src, 64)
        factor = inverse(scale)
        v.st_f16(dst, scale)
        for i in range(4):
            q = v.to_i32(away(v.f32x16_load(src + 64 * i) * factor)) + 1
            q = v.select(q > 3, v.i32x16(3), q)
            words = v.as_i32(v.to_i8(q))
            v.store(dst + 2 + 4 * i, v.to_i8(words | words >> 6 | words >> 12 | words >> 18))
        src += 256
        dst += BYTES


register("q2_0", quantize=quantize)

"""q8_1: 36 bytes: scale f16 | scale times sum f16 | i8 [32]. ggml's activations only."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.kernel import fn

BYTES = 36


@fn
def dequantize(src, n, dst):
    for _ in range(n // 32):
        scale = v.ld_f16(src)
        for i in range(0, 32, 16):
            values = v.to_f32(v.to_i32(v.i8x16_load(src + 4 + i)))
            v.store(dst + 4 * i, values * scale)
        src += BYTES
        dst += 128


register("q8_1", dequantize=dequantize)

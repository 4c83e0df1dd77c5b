"""q8_K: 292 bytes: scale f32 | i8 [256] | sums of each 16 i16 [16]. ggml's activations only."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.kernel import fn

BYTES = 292


@fn
def dequantize(src, n, dst):
    for _ in range(n // 256):
        scale = v.ld_f32(src)
        for i in range(0, 256, 16):
            values = v.to_f32(v.to_i32(v.i8x16_load(src + 4 + i)))
            v.store(dst + 4 * i, values * scale)
        src += BYTES
        dst += 1024


register("q8_K", dequantize=dequantize)

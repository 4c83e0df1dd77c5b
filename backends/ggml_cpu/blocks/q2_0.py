"""q2_0: 18 bytes: scale f16 | 64 values of two bits plus 1, four neighbours to a byte."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.kernel import fn

BYTES = 18


@fn
def dequantize(src, n, dst):
    for _ in range(n // 64):
        scale = v.ld_f16(src)
        for i in range(16):
            packed = v.ld_u8(src + 2 + i)
            for j in range(4):
                q = (packed >> (2 * j)) & 3
                v.st_f32(dst + 16 * i + 4 * j, v.float32(q - 1) * scale)
        src += BYTES
        dst += 256


register("q2_0", dequantize=dequantize)

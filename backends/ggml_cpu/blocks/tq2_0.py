"""tq2_0: 66 bytes: 256 values of two bits plus 1 [2][32], 32 apart in a byte | scale f16."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.rounding import away, inverse
from ggml_cpu.kernel import fn
from ggml_cpu.quants.activations import largest

BYTES = 66


@fn
def quantize(src, n, dst):
    for _ in range(n // 256):
        scale = largest(src, 256)
        factor = inverse(scale)
        v.st_f16(dst + 64, scale)
        for u in range(4):  # half, part of 16
            packed = v.i32x16(0)
            for j in range(4):
                x = v.f32x16_load(src + 512 * (u // 2) + 128 * j + 64 * (u % 2))
                packed = packed | (v.to_i32(away(x * factor)) + 1) << (2 * j)
            v.store(dst + 16 * u, v.to_i8(packed))
        src += 1024
        dst += BYTES


register("tq2_0", quantize=quantize)

"""tq2_0: 66 bytes: 256 values of two bits plus 1 [2][32], 32 apart in a byte | scale f16."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.kernel import fn

BYTES = 66


@fn
def pairs_of(address, shift):
    """16 values 0..3 from bit `shift` of 16 bytes, as f32."""
    return v.to_f32((v.zext_i32(v.i8x16_load(address)) >> shift) & 3)


@fn
def dequantize(src, n, dst):
    for _ in range(n // 256):
        scale = v.ld_f16(src + 64)
        for u in range(16):  # half, shift, part of 16
            at = src + u // 8 * 32 + u % 2 * 16
            v.store(dst + 64 * u, (pairs_of(at, u // 2 % 4 * 2) - 1.0) * scale)
        src += BYTES
        dst += 1024


register("tq2_0", dequantize=dequantize)

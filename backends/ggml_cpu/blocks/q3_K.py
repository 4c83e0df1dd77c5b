"""q3_K: 110 bytes: third bits [32] | low two bits [2][32], 32 apart in a byte | 16 scales of six
bits [12] | their scale f16. Values are around 4, scales around 32.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.two_bits import pairs_of
from ggml_cpu.kernel import fn

BYTES = 110


@fn
def scale_of(packed, u):
    """Scale u: low nibbles in 8 bytes, upper two bits in 4 more."""
    low = (v.ld_u8(packed + u % 8) >> (u // 8 * 4)) & 15
    return low | (((v.ld_u8(packed + 8 + u % 4) >> (u // 4 * 2)) & 3) << 4)


@fn
def dequantize(src, n, dst):
    for _ in range(n // 256):
        d = v.ld_f16(src + 108)
        for u in range(16):  # half, shift, part of 16: the number of the group
            third = (v.zext_i32(v.i8x16_load(src + u % 2 * 16)) >> (u // 2)) & 1
            at = src + 32 + u // 8 * 32 + u % 2 * 16
            q = pairs_of(at, u // 2 % 4 * 2) + v.to_f32(third) * 4.0
            scale = d * v.float32(scale_of(src + 96, u) - 32)
            v.store(dst + 64 * u, (q - 4.0) * scale)
        src += BYTES
        dst += 1024


register("q3_K", dequantize=dequantize)

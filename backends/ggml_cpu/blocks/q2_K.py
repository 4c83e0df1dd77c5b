"""q2_K: 84 bytes: scale and minimum of 16 groups, four bits each [16] | values of two bits [2][32],
32 apart in a byte | their scale f16 | the minima's f16.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.two_bits import pairs_of
from ggml_cpu.kernel import fn

BYTES = 84


@fn
def dequantize(src, n, dst):
    for _ in range(n // 256):
        d, d_min = v.ld_f16(src + 80), v.ld_f16(src + 82)
        for u in range(16):  # half, shift, part of 16: the number of the group
            group = v.ld_u8(src + u)
            scale, minimum = d * v.float32(group & 15), d_min * v.float32(group >> 4)
            at = src + 16 + u // 8 * 32 + u % 2 * 16
            v.store(dst + 64 * u, pairs_of(at, u // 2 % 4 * 2) * scale - minimum)
        src += BYTES
        dst += 1024


register("q2_K", dequantize=dequantize)

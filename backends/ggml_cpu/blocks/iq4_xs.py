"""iq4_xs: 136 bytes: scale f16 | upper bits of 8 scales u16 | their nibbles [4] | nibbles as in
iq4_nl [8][16].
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.uneven import TABLE, store_levels
from ggml_cpu.kernel import fn

BYTES = 136


@fn
def dequantize(src, n, dst):
    for _ in range(n // 256):
        d, upper = v.ld_f16(src), v.ld_u16(src + 2)
        for g in range(8):
            low = (v.ld_u8(src + 4 + g // 2) >> (4 * (g % 2))) & 15
            scale = low | (((upper >> (2 * g)) & 3) << 4)
            store_levels(src + 8 + 16 * g, v.table(TABLE), d * v.float32(scale - 32), dst)
            dst += 128
        src += BYTES


register("iq4_xs", dequantize=dequantize)

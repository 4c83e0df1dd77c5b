"""q5_K: 176 bytes: d | d_min | scales as in scales_k4.py | fifth bits [32] | lower bits [128].

Bit g of fifth bit i is of value i of group g.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.scales_k4 import levels, store_scales
from ggml_cpu.kernel import fn

BYTES = 176


@fn
def quantize(src, n, dst):
    for _ in range(n // 256):
        store_scales(src, dst, 31.0, -0.5, 15)
        for part in range(2):
            fifth = v.i32x16(0)
            for chunk in range(4):
                low = levels(src, dst, 2 * chunk, part, 31.0)
                high = levels(src, dst, 2 * chunk + 1, part, 31.0)
                fifth = fifth | ((low >> 4) << (2 * chunk)) | ((high >> 4) << (2 * chunk + 1))
                packed = (low & 15) | ((high & 15) << 4)
                v.store(dst + 48 + 32 * chunk + 16 * part, v.to_i8(packed))
            v.store(dst + 16 + 16 * part, v.to_i8(fifth))
        src += 1024
        dst += BYTES


register("q5_K", quantize=quantize)

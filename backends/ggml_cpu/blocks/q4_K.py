"""q4_K: 144 bytes: d | d_min | scales as in scales_k4.py | four-bit values [128]."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.scales_k4 import levels, store_scales
from ggml_cpu.kernel import fn

BYTES = 144


@fn
def quantize(src, n, dst):
    for _ in range(n // 256):
        store_scales(src, dst, 15.0, -1.0, 20)
        for chunk in range(4):
            for part in range(2):
                low = levels(src, dst, 2 * chunk, part, 15.0)
                high = levels(src, dst, 2 * chunk + 1, part, 15.0)
                v.store(dst + 16 + 32 * chunk + 16 * part, v.to_i8(low | (high << 4)))
        src += 1024
        dst += BYTES


register("q4_K", quantize=quantize)

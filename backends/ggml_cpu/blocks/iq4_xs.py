"""iq4_xs: 136 bytes: d f16 | upper scale bits u16 | lower scale bits [4] | level numbers [128]."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.rounding import inverse, store_nibbles
from ggml_cpu.blocks.search import uneven
from ggml_cpu.blocks.uneven import nearest_level
from ggml_cpu.kernel import fn

BYTES = 136
GROUPS = 8


@fn
def quantize(src, n, dst):
    for _ in range(n // 256):
        top = v.float32(0.0)
        for g in range(GROUPS):
            scale = uneven(src + 128 * g, 7)
            if abs(scale) > abs(top):
                top = scale
        d = -top / v.float32(32.0)
        v.st_f16(dst, d)
        upper, lower = 0, 0
        for g in range(GROUPS):
            at = src + 128 * g
            step = max(-32, min(31, int(v.rintf(inverse(d) * uneven(at, 7)))))
            upper, lower = upper | (step + 32 >> 4) << (2 * g), lower | (step + 32 & 15) << (4 * g)
            factor = inverse(d * v.float32(step))
            q, r = v.f32x16_load(at) * factor, v.f32x16_load(at + 64) * factor
            store_nibbles(dst + 8 + 16 * g, nearest_level(q), nearest_level(r))
        v.st_u16(dst + 2, upper)
        v.st_i32(dst + 4, lower)
        src += 1024
        dst += BYTES


register("iq4_xs", quantize=quantize)

"""q2_K: 84 bytes: scales and minima of four bits [16] | two-bit values [64] | d | d_min f16."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.search import levels_above, with_minimum
from ggml_cpu.kernel import fn

BYTES = 84
GROUPS = 16


@fn
def searched(src):
    return with_minimum(src, 16, v.float32(0.0), 3.0, -0.5, 0.1, 15, True)


@fn
def store_scales(src, dst):
    """d, d_min, and what they are multiplied with for each group."""
    top, top_minimum = v.float32(0.0), v.float32(0.0)
    for g in range(GROUPS):
        scale, minimum = searched(src + 64 * g)
        top, top_minimum = max(top, scale), max(top_minimum, minimum)
    v.st_f16(dst + 80, top / v.float32(15.0))
    v.st_f16(dst + 82, top_minimum / v.float32(15.0))
    factor = v.float32(15.0) / top if top > 0.0 else v.float32(0.0)
    factor_minimum = v.float32(15.0) / top_minimum if top_minimum > 0.0 else v.float32(0.0)
    for g in range(GROUPS):
        scale, minimum = searched(src + 64 * g)
        low, high = int(v.rintf(factor * scale)), int(v.rintf(factor_minimum * minimum))
        v.st_i8(dst + g, low | high << 4)


@fn
def quantize(src, n, dst):
    for _ in range(n // 256):
        store_scales(src, dst)
        d, d_min = v.ld_f16(dst + 80), v.ld_f16(dst + 82)
        for half in range(2):
            for part in range(2):
                packed = v.i32x16(0)
                for j in range(4):
                    g = 8 * half + 2 * j + part
                    both, x = v.ld_u8(dst + g), v.f32x16_load(src + 64 * g)
                    scale = d * v.float32(both & 15)
                    q = levels_above(x, scale, d_min * v.float32(both >> 4), 3.0)
                    packed = packed | (q << (2 * j))
                v.store(dst + 16 + 32 * half + 16 * part, v.to_i8(packed))
        src += 1024
        dst += BYTES


register("q2_K", quantize=quantize)

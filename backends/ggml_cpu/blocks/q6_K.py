"""q6_K: 210 bytes: low nibbles [128] | upper two bits [64] | scales i8 [16] | d f16."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.search import TINY, levels_around, symmetric
from ggml_cpu.kernel import fn

BYTES = 210
GROUPS = 16


@fn
def store_scales(src, dst):
    top = v.float32(0.0)
    for g in range(GROUPS):
        scale = symmetric(src + 64 * g, 32.0)
        if abs(scale) > abs(top):
            top = scale
    factor = v.float32(-128.0) / top if abs(top) >= TINY else v.float32(0.0)
    v.st_f16(dst + 208, v.float32(1.0) / factor if abs(top) >= TINY else v.float32(0.0))
    for g in range(GROUPS):
        v.st_i8(dst + 192 + g, min(127, int(v.rintf(factor * symmetric(src + 64 * g, 32.0)))))


@fn
def levels(src, dst, g):
    scale = v.ld_f16(dst + 208) * v.float32(v.ld_i8(dst + 192 + g))
    return levels_around(v.f32x16_load(src + 64 * g), scale, 32.0)


@fn
def quantize(src, n, dst):
    for _ in range(n // 256):
        store_scales(src, dst)
        for half in range(2):
            for part in range(2):
                upper = v.i32x16(0)
                for j in range(2):
                    g = 8 * half + 2 * j + part
                    low, high = levels(src, dst, g), levels(src, dst, g + 4)
                    packed = (low & 15) | ((high & 15) << 4)
                    v.store(dst + 64 * half + 32 * j + 16 * part, v.to_i8(packed))
                    upper = upper | ((low >> 4) << (2 * j)) | ((high >> 4) << (2 * j + 4))
                v.store(dst + 128 + 32 * half + 16 * part, v.to_i8(upper))
        src += 1024
        dst += BYTES


register("q6_K", quantize=quantize)

"""q3_K: 110 bytes: third bits [32] | lower bits [64] | six-bit scales [12] | d f16.

Bit g of third bit i is of value i of eighth g. Scales: low nibbles in 8 bytes, upper bits in 4.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.rounding import inverse
from ggml_cpu.blocks.search import levels_around, refined
from ggml_cpu.kernel import fn

BYTES = 110
GROUPS = 16
SCALES = 96


@fn
def store_scale(scales, g, six):
    low, high = scales + g % 8, scales + 8 + g % 4
    v.st_i8(low, v.ld_u8(low) | (six & 15) << (4 * (g // 8)))
    v.st_i8(high, v.ld_u8(high) | (six >> 4) << (2 * (g // 4)))


@fn
def scale_at(scales, g):
    low = v.ld_u8(scales + g % 8) >> (4 * (g // 8)) & 15
    return (low | (v.ld_u8(scales + 8 + g % 4) >> (2 * (g // 4)) & 3) << 4) - 32


@fn
def store_scales(src, dst):
    """The first bytes of the block are not in use yet."""
    top = v.float32(0.0)
    for g in range(GROUPS):
        scale = refined(src + 64 * g, 4, dst)
        if abs(scale) > abs(top):
            top = scale
    factor = v.float32(-32.0) / top if top != 0.0 else v.float32(0.0)
    v.st_f16(dst + 108, inverse(factor))
    for i in range(12):
        v.st_i8(dst + SCALES + i, 0)
    if top != 0.0:
        for g in range(GROUPS):
            scale = int(v.rintf(factor * refined(src + 64 * g, 4, dst)))
            store_scale(dst + SCALES, g, max(-32, min(31, scale)) + 32)


@fn
def levels(src, dst, g):
    scale = v.ld_f16(dst + 108) * v.float32(scale_at(dst + SCALES, g))
    return levels_around(v.f32x16_load(src + 64 * g), scale, 4.0)


@fn
def quantize(src, n, dst):
    for _ in range(n // 256):
        store_scales(src, dst)
        for part in range(2):
            third = v.i32x16(0)
            for half in range(2):
                packed = v.i32x16(0)
                for j in range(4):
                    q = levels(src, dst, 8 * half + 2 * j + part)
                    packed = packed | ((q & 3) << (2 * j))
                    third = third | ((q >> 2) << (4 * half + j))
                v.store(dst + 32 + 32 * half + 16 * part, v.to_i8(packed))
            v.store(dst + 16 * part, v.to_i8(third))
        src += 1024
        dst += BYTES


register("q3_K", quantize=quantize)

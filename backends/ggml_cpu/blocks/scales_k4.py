"""What quantizing to q4_K and q5_K shares: d | d_min f16 | six-bit scales and minima [12] of 8
groups of 32 (ggml-quants.c:get_scale_min_k4).
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.search import levels_above, with_minimum
from ggml_cpu.kernel import fn

GROUPS = 8


@fn
def searched(src, q_max, start, n_steps):
    squares = v.float32(0.0)
    for i in range(32):
        squares += v.ld_f32(src + 4 * i) * v.ld_f32(src + 4 * i)
    mean = v.float32(v.sqrtf(squares / v.float32(32.0)))
    return with_minimum(src, 32, mean, q_max, start, 0.1, n_steps, False)


@fn
def store_group(scales, g, scale, minimum):
    if g < 4:
        v.st_i8(scales + g, scale)
        v.st_i8(scales + 4 + g, minimum)
    else:
        v.st_i8(scales + 4 + g, (scale & 15) | (minimum & 15) << 4)
        v.st_i8(scales + g - 4, v.ld_u8(scales + g - 4) | (scale >> 4) << 6)
        v.st_i8(scales + g, v.ld_u8(scales + g) | (minimum >> 4) << 6)


@fn
def scale_of(scales, g):
    if g < 4:
        return v.ld_u8(scales + g) & 63
    return (v.ld_u8(scales + 4 + g) & 15) | (v.ld_u8(scales + g - 4) >> 6) << 4


@fn
def minimum_of(scales, g):
    if g < 4:
        return v.ld_u8(scales + 4 + g) & 63
    return (v.ld_u8(scales + 4 + g) >> 4) | (v.ld_u8(scales + g) >> 6) << 4


@fn
def store_scales(src, dst, q_max, start, n_steps):
    """d, d_min, and what they are multiplied with for each group."""
    top, top_minimum = v.float32(0.0), v.float32(0.0)
    for g in range(GROUPS):
        scale, minimum = searched(src + 128 * g, q_max, start, n_steps)
        top, top_minimum = max(top, scale), max(top_minimum, minimum)
    v.st_f16(dst, top / v.float32(63.0))
    v.st_f16(dst + 2, top_minimum / v.float32(63.0))
    factor = v.float32(63.0) / top if top > 0.0 else v.float32(0.0)
    factor_minimum = v.float32(63.0) / top_minimum if top_minimum > 0.0 else v.float32(0.0)
    for g in range(GROUPS):
        scale, minimum = searched(src + 128 * g, q_max, start, n_steps)
        low, high = int(v.rintf(factor * scale)), int(v.rintf(factor_minimum * minimum))
        store_group(dst + 4, g, min(63, low), min(63, high))


@fn
def levels(src, dst, g, part, q_max):
    """16 values of group g as levels 0 .. q_max, once its scale and minimum are stored."""
    scale = v.ld_f16(dst) * v.float32(scale_of(dst + 4, g))
    minimum = v.ld_f16(dst + 2) * v.float32(minimum_of(dst + 4, g))
    return levels_above(v.f32x16_load(src + 128 * g + 64 * part), scale, minimum, q_max)

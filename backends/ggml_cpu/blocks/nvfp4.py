"""nvfp4: 36 bytes: scales u8 [4] (unsigned e4m3) | level numbers in nibbles [4][8]."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.fp4 import nearest_level
from ggml_cpu.kernel import fn
from ggml_cpu.quants.nvfp4 import scales_of

BYTES = 36
LARGEST, SATURATED = 0x7E, 0x78  # from the second on, codes become the first


@fn
def nearest_scale(x):
    """x >= 0 as e4m3, halves upwards (ggml-impl.h:ggml_fp32_to_ue4m3)."""
    if not x > 0.0:
        return 0
    bits = v.bits_of_f32(min(x, v.float32(448.0)))
    exponent = (bits >> 23) - 127
    if exponent + 7 <= 0:
        return min(7, int(x * v.float32(512.0) + v.float32(0.5)))
    code = (exponent + 7) * 8 + (((bits & 0x7FFFFF) + (1 << 19)) >> 20)
    return LARGEST if code >= SATURATED else code


@fn
def quantize(src, n, dst):
    for _ in range(n // 64):
        for g in range(4):
            top = v.vmaxval(v.vabs(v.f32x16_load(src + 64 * g)))
            v.st_u8(dst + g, nearest_scale(v.float32(top / v.float32(6.0))))
        scales = scales_of(dst, 0)
        for g in range(4):
            q = nearest_level(v.f32x16_load(src + 64 * g), v.lane(scales, g))
            v.store(dst + 4 + 8 * g, v.to_i8(v.low(q) | v.high(q) << 4))
        src += 256
        dst += BYTES


register("nvfp4", quantize=quantize)

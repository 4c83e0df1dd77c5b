"""nvfp4: 64 4-bit floats with an 8-bit scale per 16, 36 bytes (ggml-common.h:block_nvfp4).

Scales u8 [4] (unsigned E4M3) | u8 [4][8], low nibbles of a group are its first values. Levels are
doubled, so scales are halved; OFFSET makes the levels unsigned.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.levels import DOUBLED_FP4, both_levels, nearest_fp4, pack_levels
from ggml_cpu.blocks.unpacked import weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_0 import CHUNKS

OFFSET = 12
LEVELS = pack_levels(tuple(level + OFFSET for level in DOUBLED_FP4))
NAN = 0x7F  # read as 0 (ggml-impl.h:ggml_ue4m3_to_fp32)
LARGEST, SATURATED = 0x7E, 0x78  # codes from SATURATED on become LARGEST


@fn
def load_bytes(block, j):
    low, high = both_levels(v.i8x16_load(v.table(LEVELS)), v.i8x32_load(block + 4))
    return v.as_i8(v.shuffle(v.as_i64(v.concat(low, high)), 0, 4, 1, 5, 2, 6, 3, 7))


@fn
def load_scales(block, j):
    e = v.zext_i32(v.low(v.as_i8(v.i32x2(v.ld_u32(block)))))
    exponent, mantissa = (e >> 3) & 15, v.to_f32(e & 7)
    power = v.as_f32((exponent + 119) << 23)
    normal = (mantissa * v.float32(0.125) + v.float32(1.0)) * power
    scale = v.select(exponent == 0, mantissa * v.float32(2.0**-10), normal)
    return v.select(e == NAN, v.float32(0.0), scale)


@fn
def nearest_scale(x):
    """Round x >= 0 to E4M3, halves up (ggml-impl.h:ggml_fp32_to_ue4m3)."""
    if not x > 0.0:
        return 0
    bits = v.bits_of_f32(min(x, v.float32(448.0)))
    exponent = (bits >> 23) - 127
    if exponent + 7 <= 0:
        return min(7, int(x * v.float32(512.0) + v.float32(0.5)))
    code = (exponent + 7) * 8 + (((bits & 0x7FFFFF) + (1 << 19)) >> 20)
    return LARGEST if code >= SATURATED else code


@fn
def encode(x, block):
    for g in range(4):
        top = v.vmaxval(v.vabs(v.f32x16_load(x + 64 * g)))
        v.st_u8(block + g, nearest_scale(v.float32(top / v.float32(6.0))))
    scales = load_scales(block, 0)
    for g in range(4):
        q = nearest_fp4(v.f32x16_load(x + 64 * g), v.lane(scales, g))
        v.store(block + 4 + 8 * g, v.to_i8(v.low(q) | v.high(q) << 4))


register(weight("nvfp4", CHUNKS, 16, load_bytes, load_scales, offset=OFFSET, encode=encode))

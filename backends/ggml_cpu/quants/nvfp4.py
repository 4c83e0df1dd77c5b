"""nvfp4: 64 four-bit floats, a scale of eight bits for 16, 36 bytes (ggml-common.h:block_nvfp4).

Scales u8 [4] (unsigned e4m3) | nibbles [4][8], the low ones of a group first. The levels are
doubled, so the scales are halved; with OFFSET they are unsigned.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quants.levels import DOUBLED_FP4, both_levels, table_of
from ggml_cpu.quants.unpacked import Decoder, weight
from ggml_cpu.quants.weight import register
from ggml_py.types import BY_NAME

OFFSET = 12
LEVELS = table_of(tuple(level + OFFSET for level in DOUBLED_FP4))
NAN = 0x7F  # is read as 0 (ggml-impl.h:ggml_ue4m3_to_fp32)


@fn
def bytes_of(block, j):
    low, high = both_levels(v.i8x16_load(v.table(LEVELS)), v.i8x32_load(block + 4))
    return v.as_i8(v.shuffle(v.as_i64(v.concat(low, high)), 0, 4, 1, 5, 2, 6, 3, 7))


@fn
def scales_of(block, j):
    e = v.zext_i32(v.low(v.as_i8(v.i32x2(v.ld_u32(block)))))
    exponent, mantissa = (e >> 3) & 15, v.to_f32(e & 7)
    power = v.as_f32((exponent + 119) << 23)
    normal = (mantissa * v.float32(0.125) + v.float32(1.0)) * power
    scale = v.select(exponent == 0, mantissa * v.float32(2.0**-10), normal)
    return v.select(e == NAN, v.float32(0.0), scale)


register(weight(Decoder(BY_NAME["nvfp4"], 16, bytes_of, scales_of, offset=OFFSET)))

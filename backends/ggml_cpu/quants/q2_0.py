"""q2_0: 64 values of two bits plus 1 with one scale, 18 bytes (ggml-common.h:block_q2_0).

d f16 | four neighbours to a byte [16]
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quants.unpacked import Decoder, weight
from ggml_cpu.quants.weight import register
from ggml_py.types import BY_NAME


@fn
def bytes_of(block, j):
    packed = v.zext_i32(v.i8x16_load(block + 2))
    apart = packed | packed << 6 | packed << 12 | packed << 18
    return v.as_i8(apart & 0x03030303)


@fn
def scales_of(block, j):
    return v.f32x2(v.ld_f16(block))


register(weight(Decoder(BY_NAME["q2_0"], 32, bytes_of, scales_of, offset=1)))

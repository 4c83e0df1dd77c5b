"""iq2_bn: 64 2-bit values offset by 1, 20 bytes (ik_llama.cpp's block_iq2_bn).

d f32 | u8 [16], bits 2p of byte i for value 16 p + i
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.unpacked import weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_0 import CHUNKS

VALUES = 4


@fn
def load_bytes(block, j):
    packed = v.i32x4_load(block + VALUES)
    low = v.concat(packed, packed >> 2)
    return v.as_i8(v.concat(low, low >> 4) & 0x03030303)


@fn
def load_scales(block, j):
    return v.f32x2(v.ld_f32(block))


register(weight("iq2_bn", CHUNKS, 32, load_bytes, load_scales, offset=1))

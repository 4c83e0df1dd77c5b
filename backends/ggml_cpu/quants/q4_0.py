"""q4_0: 32 values of 4 bits, offset by 8, with one scale, 18 bytes (ggml-common.h:block_q4_0).

Block: scale f16 | u8 [16], low nibbles are values 0..15, high nibbles 16..31
Panel block: scales f16 [LANES], words [4][LANES]
"""

from __future__ import annotations

from dataclasses import replace

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.block32 import four_bits, with_offset
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.interleave import scale_first
from ggml_cpu.blocks.rounding import offset_levels, store_nibbles
from ggml_cpu.blocks.walk import load_bytes
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_0 import ACTIVATIONS

load_pairs, load_values = four_bits(0, 2)


@fn
def decode(block, x):
    packed = v.zext_i32(v.i8x16_load(block + 2))
    scale = v.ld_f16(block)
    v.store(x, (v.to_f32(packed & 15) - 8.0) * scale)
    v.store(x + 64, (v.to_f32(packed >> 4) - 8.0) * scale)


@fn
def encode(x, block):
    q, r = offset_levels(x, 8, block)
    store_nibbles(block + 2, q, r)


@fn
def vector(block, i):
    packed = load_bytes(block + 2 + i % 16) >> (i // 16 * 4)
    return v.to_f32(v.to_i32((packed & 15) - 8)) * v.f16_bcast(block)


panel = scale_first(18, 2)
weight = with_offset("q4_0", 8, ACTIVATIONS, panel, load_pairs, load_values, decode, encode)
register(replace(weight, vector=vector))

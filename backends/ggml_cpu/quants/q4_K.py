"""q4_K: 256 values of 4 bits in the sub-blocks of sub32.py, 144 bytes (ggml-common.h:block_q4_K).

Block: d f16 | dmin f16 | scales, 12 bytes | u8 [128], 32 bytes per chunk of 64 values: low nibbles
are its first sub-block, high nibbles its second.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.panels import WORD
from ggml_cpu.blocks.sub32 import encoder, weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_K import ACTIVATIONS

VALUES = 4 * WORD


@fn
def load_value(w, j, high, i):
    packed = v.i32_load(w + VALUES + WORD * (8 * j + i))
    return v.as_i8(packed >> (4 * high)) & 15


@fn
def load_quads(block, half):
    packed = v.i8x64_load(block + 16 + 64 * half)
    return packed & 15, (packed >> 4) & 15


store_scales, levels = encoder(15.0, -1.0, 20)


@fn
def encode(x, block):
    store_scales(x, block)
    for chunk in range(4):
        for part in range(2):
            low, high = levels(x, block, 2 * chunk, part), levels(x, block, 2 * chunk + 1, part)
            v.store(block + 16 + 32 * chunk + 16 * part, v.to_i8(low | (high << 4)))


register(weight("q4_K", 15, ACTIVATIONS, load_value, load_quads, encode))

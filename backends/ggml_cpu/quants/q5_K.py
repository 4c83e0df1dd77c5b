"""q5_K: 256 values of 5 bits in the sub-blocks of sub32.py, 176 bytes (ggml-common.h:block_q5_K).

Block: d f16 | dmin f16 | scales, 12 bytes | fifth bits u8 [32] | u8 [128], 32 bytes per chunk of 64
values: low nibbles are its first sub-block, high nibbles its second. Bit s of byte i is the fifth
bit of value i of sub-block s.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.panels import WORD
from ggml_cpu.blocks.sub32 import encoder, weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_K import ACTIVATIONS

FIFTH = 4 * WORD
VALUES = 12 * WORD


@fn
def load_value(w, j, high, i):
    packed = v.i32_load(w + VALUES + WORD * (8 * j + i))
    fifth = (v.i32_load(w + FIFTH + WORD * i) >> (2 * j)) << (4 - high)
    return (v.as_i8(packed >> (4 * high)) & 15) | (v.as_i8(fifth) & 16)


@fn
def load_quads(block, half):
    packed = v.i8x64_load(block + 48 + 64 * half)
    bits = v.as_i16(v.i8x32_load(block + 16)) >> (4 * half)
    fifth = v.concat(bits, bits >> 2)
    low = (packed & 15) | (v.as_i8(fifth << 4) & 16)
    return low, ((packed >> 4) & 15) | (v.as_i8(fifth << 3) & 16)


store_scales, levels = encoder(31.0, -0.5, 15)


@fn
def encode(x, block):
    store_scales(x, block)
    for part in range(2):
        fifth = v.i32x16(0)
        for chunk in range(4):
            low, high = levels(x, block, 2 * chunk, part), levels(x, block, 2 * chunk + 1, part)
            fifth = fifth | ((low >> 4) << (2 * chunk)) | ((high >> 4) << (2 * chunk + 1))
            packed = (low & 15) | ((high & 15) << 4)
            v.store(block + 48 + 32 * chunk + 16 * part, v.to_i8(packed))
        v.store(block + 16 + 16 * part, v.to_i8(fifth))


register(weight("q5_K", 31, ACTIVATIONS, load_value, load_quads, encode))

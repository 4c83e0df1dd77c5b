"""q5_K: 5-bit values in the blocks of sub32.py (ggml-common.h:block_q5_K).

In place, 176 bytes: d | dmin | scales 12 | fifth bits u8 [32] | u8 [128] as in q4_K.
Bit s of byte i is the fifth bit of value i of sub-block s.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quants.sub32 import WORD, weight
from ggml_cpu.quants.weight import register
from ggml_py.types import BY_NAME

FIFTH = 4 * WORD
VALUES = 12 * WORD


@fn
def value_of(w, j, high, i):
    packed = v.i32_load(w + VALUES + WORD * (8 * j + i))
    fifth = (v.i32_load(w + FIFTH + WORD * i) >> (2 * j)) << (4 - high)
    return (v.as_i8(packed >> (4 * high)) & 15) | (v.as_i8(fifth) & 16)


@fn
def quads_of(block, half):
    packed = v.i8x64_load(block + 48 + 64 * half)
    bits = v.as_i16(v.i8x32_load(block + 16)) >> (4 * half)
    fifth = v.concat(bits, bits >> 2)
    low = (packed & 15) | (v.as_i8(fifth << 4) & 16)
    return low, ((packed >> 4) & 15) | (v.as_i8(fifth << 3) & 16)


register(weight(BY_NAME["q5_K"], value_of, quads_of))

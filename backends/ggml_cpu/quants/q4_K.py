"""q4_K: 4-bit values in the blocks of sub32.py (ggml-common.h:block_q4_K).

In place, 144 bytes: d | dmin | scales 12 | u8 [128], 32 bytes for each chunk of 64: low nibbles are
its first sub-block, high ones its second.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quants.sub32 import WORD, weight
from ggml_cpu.quants.weight import register
from ggml_py.types import BY_NAME

VALUES = 4 * WORD


@fn
def value_of(w, j, high, i):
    packed = v.i32_load(w + VALUES + WORD * (8 * j + i))
    return v.as_i8(packed >> (4 * high)) & 15


@fn
def quads_of(block, half):
    packed = v.i8x64_load(block + 16 + 64 * half)
    return packed & 15, (packed >> 4) & 15


register(weight(BY_NAME["q4_K"], value_of, quads_of))

"""q5_1: 5-bit values in blocks of 32 with a scale and a minimum (ggml-common.h:block_q5_1).

In place, 24 bytes: scale f16 | minimum f16 | fifth bits, bit i that of value i | u8 [16] as in q4_1
Panel block: the block word by word, [6][LANES], the fifth bits in the order of q5_0.py
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quants.interleave import interleave_words, separate_words
from ggml_cpu.quants.q4_1 import weight
from ggml_cpu.quants.q5_0 import bits_by_value, bits_by_word, block_values, five_bits
from ggml_cpu.quants.weight import register
from ggml_cpu.target import LANES
from ggml_py.types import BY_NAME

BYTES = 24
WORD = 4 * LANES
PANEL = BYTES * LANES


@fn
def unpack(src, stride, rows, n, dst):
    for _ in range(n // 32):
        interleave_words(src, stride, rows, 6, dst, WORD)
        v.store(dst + WORD, bits_by_word(v.i32_load(dst + WORD)))
        src += BYTES
        dst += PANEL


@fn
def row(panel, r, n, dst):
    for _ in range(n // 32):
        separate_words(panel, r, 6, dst)
        v.st_i32(dst + 4, bits_by_value(v.ld_u32(dst + 4)))
        panel += PANEL
        dst += BYTES


@fn
def nibbles_of(w, i):
    return five_bits(v.i8_load(w + WORD * (2 + i)), v.i32_load(w + WORD), i)


@fn
def values_of(block):
    return block_values(block + 4, block + 8)


register(weight(BY_NAME["q5_1"], nibbles_of, values_of, unpack, row))

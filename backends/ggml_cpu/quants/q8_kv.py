"""q8_kv: 32 int8 with the scale of their row, 36 bytes (rows of ik_llama.cpp's Q8_KV).

Block: scale f32 | i8 [32]
Panel block: scales f32 [LANES] | words [8][LANES], bytes XOR I8_BIAS
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.activations import BIAS_32
from ggml_cpu.blocks.block32 import Products, weight
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.interleave import interleave_words, word_interleaver
from ggml_cpu.blocks.panels import WORD
from ggml_cpu.blocks.rounding import store_scaled
from ggml_cpu.kernel import Function, fn
from ggml_cpu.quants.q8_0 import ACTIVATIONS, start
from ggml_cpu.quants.q8_0 import add_words as add_row_words
from ggml_cpu.quants.q8_0 import load_pairs as load_words
from ggml_cpu.target import I8_BIAS

VALUES = 4
FLIP = I8_BIAS * 0x01010101
interleave_values = word_interleaver(FLIP)


@fn
def pack(src, stride, rows, scales, dst):
    interleave_words(src, stride, rows, 1, dst, WORD)
    interleave_values(src + VALUES, stride, rows, 8, dst + WORD, WORD)


@fn
def gather(scales, panel, r, dst):
    v.st_i32(dst, v.ld_i32(panel + 4 * r))
    for i in range(1, 9):
        v.st_i32(dst + 4 * i, v.ld_i32(panel + i * WORD + 4 * r) ^ FLIP)


def add_words(width: int) -> Function:
    add_from = add_row_words(width)

    @fn
    def add(w, a, sums):
        add_from(w + WORD, a, sums)

    return add


@fn
def load_pairs(w, i):
    return load_words(w + WORD, i)


@fn
def load_scales(w):
    return v.f32_load(w)


@fn
def load_scale(block):
    return v.ld_f32(block)


@fn
def in_place(w, a):
    start = v.set_lane(v.i32x8(0), 0, v.ld_i32(a + BIAS_32))
    return v.dot4_biased(start, v.i8x32_load(w + VALUES) ^ I8_BIAS, v.i8x32_load(a))


@fn
def decode(block, x):
    store_scaled(block + VALUES, 32, v.ld_f32(block), x)


products = Products(add_words, load_pairs, I8_BIAS, start, load_scales, in_place, load_scale)
register(weight("q8_kv", ACTIVATIONS, (pack, gather), products, decode, None))

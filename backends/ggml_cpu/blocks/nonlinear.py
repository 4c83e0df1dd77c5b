"""Types of block32.py with nibbles that index 16 levels: scale, 1 or 2 bytes | u8 [16].

Panel kernels add an offset to the levels, which makes them unsigned. The offset is a multiple of 8,
because activation blocks store -8 times their sum.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks import block32
from ggml_cpu.blocks.activations import SUM8_32, Activations
from ggml_cpu.blocks.block32 import Products, nibbles
from ggml_cpu.blocks.dots import ANY, biased_dot, unsigned_dot
from ggml_cpu.blocks.format import Weight
from ggml_cpu.blocks.interleave import scale_first
from ggml_cpu.blocks.levels import both_levels, pack_levels, store_levels
from ggml_cpu.blocks.panels import WORD
from ggml_cpu.kernel import Function, fn
from ggml_cpu.target import I8_BIAS
from ggml_py.types import BY_NAME


def weight(
    name: str,
    levels: tuple[int, ...],
    offset: int,
    activations: Activations,
    load_scale: Function,
    load_scales: Function,
    encode: Function,
) -> Weight:
    """Return a weight type with 16 nonlinear levels.

    offset               I8_BIAS, or an offset that moves the levels into 0..127
    load_scale(block)    scale of a block in place
    load_scales(scales)  scales of a panel block
    """
    scale_size, table = BY_NAME[name].type_size - 16, pack_levels(levels)

    @fn
    def load_pairs(w, i):
        shifted = v.i8x16_load(v.table(table)) + offset
        return both_levels(shifted, v.i8_load(w + i * WORD))

    @fn
    def in_place(w, a):
        low, high = both_levels(v.i8x16_load(v.table(table)), v.i8x16_load(w + scale_size))
        return v.dot4_i8(v.i32x8(0), v.concat(low, high), v.i8x32_load(a))

    @fn
    def decode(block, x):
        store_levels(block + scale_size, v.table(table), load_scale(block), x)

    words = nibbles(load_pairs, ANY, biased_dot if offset == I8_BIAS else unsigned_dot)
    start = SUM8_32, offset // 8
    products = Products(words, load_pairs, offset, start, load_scales, in_place, load_scale)
    panel = scale_first(16 + scale_size, scale_size)
    return block32.weight(name, activations, panel, products, decode, encode)

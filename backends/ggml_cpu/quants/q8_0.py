"""q8_0: 32 int8 with one scale, 34 bytes (ggml-common.h:block_q8_0); q8_0 activations.

Block: scale f16 | i8 [32]
Panel block: scales f16 [LANES], words [8][LANES], bytes XOR I8_BIAS
"""

from __future__ import annotations

from dataclasses import replace

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.activations import (
    BIAS_32,
    BYTES_32,
    CHUNK,
    CHUNK_BYTES,
    SCALE_32,
    SUM8_32,
    SUM_32,
    Activations,
    as_f16,
    half_chunk,
    max_magnitude,
    over_127,
    quantize_16,
)
from ggml_cpu.blocks.block32 import Products, first_f16, first_f16s, weight
from ggml_cpu.blocks.dots import ANY, biased_dot, choose_dots
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.interleave import scale_first
from ggml_cpu.blocks.panels import WORD
from ggml_cpu.blocks.rounding import inverse, max_value, round_away, store_scaled
from ggml_cpu.blocks.walk import load_bytes
from ggml_cpu.kernel import Function, fn
from ggml_cpu.target import I8_BIAS


@fn
def pack(x, n, to):
    """Quantize f32 values to blocks of 32; scale and scale * sum are rounded to f16 like in ggml.

    See arch/x86/quants.c:quantize_row_q8_0, quantize_row_q8_1.
    """
    for _ in range(n // 32):
        amax = max_magnitude(x, 32)
        scale = over_127(amax)
        total = quantize_16(x, scale, to) + quantize_16(x + 64, scale, to + 16)
        d = amax / v.float32(127)
        fields = as_f16(v.set_lane(v.f32x4(d), 1, d * v.float32(total)))
        v.st_f32(to + SCALE_32, v.lane(fields, 0))
        v.st_f32(to + SUM_32, v.lane(fields, 1))
        v.st_i32(to + SUM8_32, -8 * total)
        v.st_i32(to + BIAS_32, -I8_BIAS * total)
        x += 128
        to += BYTES_32


@fn
def pack_chunks(x, n, to):
    for i in range(n // 32):
        amax = max_magnitude(x + 128 * i, 32)
        step = v.lane(as_f16(v.f32x4(amax / v.float32(127))), 0)
        half_chunk(x + 128 * i, over_127(amax), step, to + i // 2 * CHUNK_BYTES, i % 2)


ACTIVATIONS = Activations("q8_0", 32, BYTES_32, pack)
CHUNKS = Activations("q8_0_chunks", CHUNK, CHUNK_BYTES, pack_chunks)


def add_words(width: int) -> Function:
    size, _, begin, one, _, put_dots, *_ = choose_dots(width, 8, ANY, biased_dot)

    @fn
    def add(w, a, sums):
        dots = v.i32_regs(size)
        begin(dots, sums)
        for i in range(8):
            values = v.i8_load(w + i * WORD)
            one(dots, i, values, a, i)
        put_dots(sums, dots)

    return add


@fn
def load_pairs(w, i):
    return v.i8_load(w + i * WORD), v.i8_load(w + (i + 4) * WORD)


@fn
def in_place(w, a):
    start = v.set_lane(v.i32x8(0), 0, v.ld_i32(a + BIAS_32))
    return v.dot4_biased(start, v.i8x32_load(w + 2) ^ I8_BIAS, v.i8x32_load(a))


@fn
def decode(block, x):
    store_scaled(block + 2, 32, v.ld_f16(block), x)


@fn
def encode(src, block):
    x, y = v.f32x16_load(src), v.f32x16_load(src + 64)
    scale = v.float32(max_value(v.vabs(x), v.vabs(y)) / v.float32(127.0))
    factor = inverse(scale)
    v.st_f16(block, scale)
    v.store(block + 2, round_away(x * factor))
    v.store(block + 18, round_away(y * factor))


@fn
def vector(block, i):
    return v.to_f32(v.to_i32(load_bytes(block + 2 + i))) * v.f16_bcast(block)


panel = scale_first(34, 2, flip=I8_BIAS * 0x01010101)
start = BIAS_32, 1
products = Products(add_words, load_pairs, I8_BIAS, start, first_f16s, in_place, first_f16)
register(replace(weight("q8_0", ACTIVATIONS, panel, products, decode, encode), vector=vector))

"""Quantizer of iq1_bn (iqk_quantize.cpp:quantize_one_row_1bn of ik_llama.cpp).

Rows begin with d f16, the largest magnitude. Block: u8 [4][3], each five digits in base 3, as a
fraction of 256; u8, the last digits of four groups of 16.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import RowSteps, register
from ggml_cpu.quantize.lanes import LEVELS, load_integers, put_byte
from ggml_cpu.quantize.ternary_rows import finish, no_search, no_weights, put_digits, start


@fn
def fraction(number):
    """Return ceil(256 * number / 243)."""
    return v.to_i32(v.vceil(v.to_f32(number * 256) / v.float32(243.0)))


@fn
def put_block(m, found, d):
    put_digits(m, d)
    last, weight = v.i32x16(0), 1
    for g in range(4):
        for k in range(3):
            number = v.i32x16(0)
            for i in range(4, -1, -1):
                number = number * 3 + load_integers(m + LEVELS, 16 * g + 5 * k + i)
            put_byte(m, 3 * g + k, fraction(number))
        last = last + load_integers(m + LEVELS, 16 * g + 15) * weight
        weight = weight * 3
    put_byte(m, 12, fraction(last))


register("iq1_bn", no_weights, rows=RowSteps(no_search, start, put_block, finish, head=2))

"""Quantizer of iq2_bn (iqk_quantize.cpp:quantize_one_row_2bn of ik_llama.cpp).

Rows begin with d f32, the largest magnitude. Block: u8 [16], four values per byte, 16 apart.
"""

from __future__ import annotations

from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import RowSteps, register
from ggml_cpu.quantize.lanes import LEVELS, load_integers, put_byte
from ggml_cpu.quantize.ternary_rows import finish, no_search, no_weights, put_digits, start


@fn
def put_block(m, found, d):
    put_digits(m, d)
    for i in range(16):
        q = load_integers(m + LEVELS, i)
        for k in range(1, 4):
            q = q | (load_integers(m + LEVELS, 16 * k + i) << (2 * k))
        put_byte(m, i, q)


register("iq2_bn", no_weights, rows=RowSteps(no_search, start, put_block, finish))

"""Quantizer of iq3_ks (iqk_quantize.cpp:quantize_row_iq3_ks_impl of ik_llama.cpp).

Rows begin with d f16. Block: fifth bits of codes u8, shifts u8 | lower four bits of codes u8 [4] |
lower two bits u8 [64] | third bits u8 [32].
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.search import nearest
from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.lanes import STEPS, load_integers, mul, put_byte
from ggml_cpu.quantize.shifted import (
    GroupSteps,
    build_search,
    put_shift_bits,
    put_thirds,
    quantize_rows,
)


@fn
def start(largest):
    return -largest / v.float32(16.0)


@fn
def round(factor, scale):
    return v.vmin(v.vmax(nearest(mul(factor, scale)), -16.0), 15.0)


@fn
def put_codes(m):
    high = v.i32x16(0)
    for g in range(8):
        high = high | (((load_integers(m + STEPS, g) + 16) >> 4) << g)
    put_byte(m, 0, high)
    put_shift_bits(m, 1, 8)
    for k in range(4):
        low = (load_integers(m + STEPS, k) + 16) & 15
        put_byte(m, 2 + k, low | (((load_integers(m + STEPS, k + 4) + 16) & 15) << 4))
    put_thirds(m, 6)


STEP = GroupSteps(start, round)
plain, weighted, rows = quantize_rows(build_search(3, 32, 5, False), STEP, put_codes, 102, 2)
register("iq3_ks", plain, weighted, rows=rows)

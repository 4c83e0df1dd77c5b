"""Quantizer of iq4_ks (iqk_quantize.cpp:quantize_row_iq4_k_impl_bs128 of ik_llama.cpp).

Rows begin with d f32. Block: codes u8 [8] | u8 [128].
"""

from __future__ import annotations

from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.lanes import LEVELS, VECTOR
from ggml_cpu.quantize.shifted import ODD, build_search, put_odd_codes, quantize_rows
from ggml_cpu.quantize.steps import put_nibbles


@fn
def put_codes(m):
    put_odd_codes(m)
    for g in range(8):
        put_nibbles(m, 8 + 16 * g, 16, m + LEVELS + 32 * VECTOR * g)


plain, weighted, rows = quantize_rows(build_search(4, 32, 7, False, True), ODD, put_codes, 136)
register("iq4_ks", plain, weighted, rows=rows)

"""Quantizer of iq5_ks (iqk_quantize.cpp:quantize_row_iq5_ks_impl of ik_llama.cpp).

Rows begin with d f32. Block: codes u8 [8] | u8 [128] | fifth bits u8 [32].
"""

from __future__ import annotations

from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.shifted import ODD, build_search, put_fives, put_odd_codes, quantize_rows


@fn
def put_codes(m):
    put_odd_codes(m)
    put_fives(m, 8)


plain, weighted, rows = quantize_rows(build_search(5, 32, 5, False), ODD, put_codes, 168)
register("iq5_ks", plain, weighted, rows=rows)

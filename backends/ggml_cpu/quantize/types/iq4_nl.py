"""Quantizer of iq4_nl (ggml-quants.c:quantize_row_iq4_nl_impl): d | u8 [16]."""

from __future__ import annotations

from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.lanes import LEVELS, W, X, put_half
from ggml_cpu.quantize.steps import put_nibbles
from ggml_cpu.quantize.uneven import find_scale, put_levels
from ggml_cpu.quantize.ways import build_square_pair


@fn
def put_all(m):
    d = find_scale(m + X, m + W, 32)
    put_half(m, 0, d)
    put_levels(m + X, m + LEVELS, 32, d)
    put_nibbles(m, 2, 16, m + LEVELS)


register("iq4_nl", *build_square_pair(32, 2.0, put_all))

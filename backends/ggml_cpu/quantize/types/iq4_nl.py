"""iq4_nl (ggml-quants.c:quantize_row_iq4_nl_impl): d | u8 [16]."""

from __future__ import annotations

from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.lanes import LEVELS, W, X, at, mul, put, put_half, sum_of_squares, weigh
from ggml_cpu.quantize.steps import put_nibbles
from ggml_cpu.quantize.uneven import put_levels, searched


@fn
def put_all(m):
    d = searched(m + X, m + W, 32)
    put_half(m, 0, d)
    put_levels(m + X, m + LEVELS, 32, d)
    put_nibbles(m, 2, 16, m + LEVELS)


@fn
def plain(m):
    for i in range(32):
        put(m + W, i, mul(at(m + X, i), at(m + X, i)))
    put_all(m)


@fn
def weighted(m):
    weigh(m + X, m + W, 32, sum_of_squares(m + X, 32) * 0.0625)
    put_all(m)


register("iq4_nl", plain, weighted)

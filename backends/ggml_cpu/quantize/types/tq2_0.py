"""Quantizer of tq2_0 (ggml-quants.c:quantize_row_tq2_0_ref).

u8 [64], four values per byte, 32 apart | d.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.lanes import LEVELS, X, divide, load_lanes, max_magnitude, mul, put, put_half
from ggml_cpu.quantize.simple import round_away
from ggml_cpu.quantize.steps import put_quarters


@fn
def encode_plain(m):
    d = max_magnitude(m + X, 256)
    factor = divide(v.f32x16(1.0), d)
    for i in range(256):
        put(m + LEVELS, i, round_away(mul(load_lanes(m + X, i), factor)) + 1.0)
    put_quarters(m, 0)
    put_half(m, 64, d)


register("tq2_0", encode_plain)

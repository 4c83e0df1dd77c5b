"""Quantizer of q8_0 (ggml-quants.c:quantize_row_q8_0_ref): d | i8 [32]."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.lanes import X, divide, load_lanes, max_magnitude, mul, put_byte, put_half
from ggml_cpu.quantize.simple import round_away


@fn
def encode_plain(m):
    d = max_magnitude(m + X, 32) / 127.0
    factor = divide(v.f32x16(1.0), d)
    put_half(m, 0, d)
    for i in range(32):
        put_byte(m, 2 + i, v.to_i32(round_away(mul(load_lanes(m + X, i), factor))))


register("q8_0", encode_plain)

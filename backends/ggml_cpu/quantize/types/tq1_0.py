"""Quantizer of tq1_0 (ggml-quants.c:quantize_row_tq1_0_ref).

Five values per byte u8 [32] and [16] | four values per byte u8 [4] | d.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.lanes import X, divide, load_lanes, max_magnitude, mul, put_byte, put_half
from ggml_cpu.quantize.simple import round_away


@fn
def put_digits(m, to, n, first, count, factor):
    """Store n bytes of `count` base-3 digits (see quants/tq1_0.py); digits are n values apart."""
    for i in range(n):
        number = v.i32x16(0)
        for j in range(5):
            number = number * 3
            if j < count:
                x = load_lanes(m + X, first + n * j + i)
                number = number + (v.to_i32(round_away(mul(x, factor))) + 1)
        scaled = v.to_f32(number * 256 + 242)
        put_byte(m, to + i, v.to_i32((scaled + 0.5) * (1.0 / 243.0)))


@fn
def encode_plain(m):
    d = max_magnitude(m + X, 256)
    factor = divide(v.f32x16(1.0), d)
    put_digits(m, 0, 32, 0, 5, factor)
    put_digits(m, 32, 16, 160, 5, factor)
    put_digits(m, 48, 4, 240, 4, factor)
    put_half(m, 52, d)


register("tq1_0", encode_plain)

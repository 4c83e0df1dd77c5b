"""Quantizer of q2_0 (ggml-quants.c:quantize_row_q2_0_ref).

d | u8 [16], four consecutive values per byte.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.lanes import X, load_lanes, max_magnitude, mul, put_byte, put_half, ratio
from ggml_cpu.quantize.simple import round_away


@fn
def encode_plain(m):
    d = max_magnitude(m + X, 64)
    factor = ratio(v.f32x16(1.0), d)
    put_half(m, 0, d)
    for i in range(16):
        packed = v.i32x16(0)
        for j in range(4):
            q = v.vmin(
                v.vmax(round_away(mul(load_lanes(m + X, 4 * i + j), factor)) + 1.0, 0.0), 3.0
            )
            packed = packed | (v.to_i32(q) << (2 * j))
        put_byte(m, 2 + i, packed)


register("q2_0", encode_plain)

"""Quantizer of q1_0 (ggml-quants.c:quantize_row_q1_0_ref): d, the mean magnitude | bits [128]."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.lanes import X, load_lanes, put_byte, put_half


@fn
def encode_plain(m):
    total = v.f32x16(0.0)
    for i in range(128):
        total = total + v.vabs(load_lanes(m + X, i))
    put_half(m, 0, total / 128.0)
    for i in range(16):
        bits = v.i32x16(0)
        for j in range(8):
            bits = bits | v.select(load_lanes(m + X, 8 * i + j) >= 0.0, v.i32x16(1 << j), 0)
        put_byte(m, 2 + i, bits)


register("q1_0", encode_plain)

"""Quantizer of tq2_0 (ggml-quants.c:quantize_row_tq2_0_ref).

u8 [64], four values per byte, 32 apart | d.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.lanes import LEVELS, X, at, divided, largest, mul, put, put_half
from ggml_cpu.quantize.simple import away
from ggml_cpu.quantize.steps import put_quarters


@fn
def plain(m):
    d = largest(m + X, 256)
    factor = divided(v.f32x16(1.0), d)
    for i in range(256):
        put(m + LEVELS, i, away(mul(at(m + X, i), factor)) + 1.0)
    put_quarters(m, 0)
    put_half(m, 64, d)


register("tq2_0", plain)

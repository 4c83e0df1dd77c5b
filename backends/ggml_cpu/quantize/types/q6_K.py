"""Quantizer of q6_K (ggml-quants.c:quantize_row_q6_K_ref, quantize_row_q6_K_impl).

Low four bits u8 [128] | upper two bits u8 [64] | scales i8 [16] | d.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.search import nearest
from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.lanes import (
    LEVELS,
    SCALES,
    STEPS,
    VECTOR,
    W,
    X,
    extreme,
    is_zero,
    load_integers,
    load_lanes,
    mul,
    put,
    put_byte,
    put_half,
    round_to_f16,
)
from ggml_cpu.quantize.steps import levels_around
from ggml_cpu.quantize.symmetric import best_scale


@fn
def put_levels(m):
    for part in range(2):
        q = m + LEVELS + 128 * VECTOR * part
        for i in range(32):
            a, b = load_integers(q, i), load_integers(q, i + 32)
            c, d = load_integers(q, i + 64), load_integers(q, i + 96)
            put_byte(m, 64 * part + i, (a & 15) | ((c & 15) << 4))
            put_byte(m, 64 * part + 32 + i, (b & 15) | ((d & 15) << 4))
            upper = (a >> 4) | ((b >> 4) << 2) | ((c >> 4) << 4) | ((d >> 4) << 6)
            put_byte(m, 128 + 32 * part + i, upper)


@fn
def encode_weighted(m):
    for g in range(16):
        x = m + X + 16 * VECTOR * g
        put(m + SCALES, g, best_scale(x, x + W, 16, 32.0, x + LEVELS))
    top, zero = extreme(m + SCALES, 16), v.f32x16(0.0)
    none = is_zero(top)
    factor = v.f32x16(-128.0) / v.select(none, v.f32x16(1.0), top)
    for g in range(16):
        step = v.vmin(nearest(mul(factor, load_lanes(m + SCALES, g))), 127.0)
        put(m + STEPS, g, v.select(none, zero, step))
        put_byte(m, 192 + g, load_integers(m + STEPS, g))
    d = v.select(none, zero, v.f32x16(1.0) / factor)
    put_half(m, 208, d)
    levels_around(m, 16, 16, 32.0, round_to_f16(d), m + STEPS)
    for i in range(256):
        put(m + LEVELS, i, v.select(none, zero, load_lanes(m + LEVELS, i)))
    put_levels(m)


@fn
def encode_plain(m):
    for i in range(256):
        put(m + W, i, mul(load_lanes(m + X, i), load_lanes(m + X, i)))
    encode_weighted(m)


register("q6_K", encode_plain, encode_weighted)

"""Quantizer of q3_K (ggml-quants.c:quantize_row_q3_K_ref, quantize_row_q3_K_impl).

Third bits u8 [32] | low bits u8 [64] | scales u8 [12] | d.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.lanes import (
    LEVELS,
    SCALES,
    STEPS,
    SUMS,
    VECTOR,
    W,
    X,
    extreme,
    load_integers,
    load_lanes,
    mul,
    put,
    put_byte,
    put_half,
    round_and_clip,
    round_to_f16,
    sum_lanes,
    sum_of_squares,
    weigh,
)
from ggml_cpu.quantize.steps import levels_around, put_quarters
from ggml_cpu.quantize.symmetric import best_scale, moved_scale


@fn
def put_scales(m):
    """Store the low nibbles of 16 scales 0 .. 63, then their upper two bits."""
    for g in range(8):
        low, high = load_integers(m + STEPS, g) & 15, load_integers(m + STEPS, g + 8) & 15
        put_byte(m, 96 + g, low | (high << 4))
    for g in range(4):
        bits = v.i32x16(0)
        for j in range(4):
            bits = bits | ((load_integers(m + STEPS, 4 * j + g) >> 4) << (2 * j))
        put_byte(m, 104 + g, bits)


@fn
def put_all(m, d):
    """Store the blocks; STEPS has the scales 0 .. 63, 32 for zero."""
    put_half(m, 108, d)
    put_scales(m)
    for g in range(16):
        put(m + STEPS, g, load_lanes(m + STEPS, g) - 32.0)
    levels_around(m, 16, 16, 4.0, round_to_f16(d), m + STEPS)
    for i in range(32):
        bits = v.i32x16(0)
        for j in range(8):
            bits = bits | ((load_integers(m + LEVELS, 32 * j + i) >> 2) << j)
        put_byte(m, i, bits)
    put_quarters(m, 32)


@fn
def encode_plain(m):
    for i in range(256):
        put(m + W, i, mul(load_lanes(m + X, i), load_lanes(m + X, i)))
    for g in range(16):
        x = m + X + 16 * VECTOR * g
        put(m + SCALES, g, moved_scale(x, x + W, 16, 4.0, x + LEVELS))
    top = extreme(m + SCALES, 16)
    some = top != 0.0
    factor = v.f32x16(-32.0) / v.select(some, top, v.f32x16(1.0))
    for g in range(16):
        step = round_and_clip(mul(factor, load_lanes(m + SCALES, g)), -32.0, 31.0) + 32.0
        put(m + STEPS, g, v.select(some, step, v.f32x16(0.0)))
    put_all(m, v.select(some, v.f32x16(1.0) / factor, v.f32x16(0.0)))


@fn
def encode_weighted(m):
    sigma2 = (sum_of_squares(m + X, 256) * 2.0) / 256.0
    for g in range(16):
        x = m + X + 16 * VECTOR * g
        weigh(x, x + W, 16, sigma2)
        put(m + SUMS, g, sum_lanes(x + W, 16))
        put(m + SCALES, g, best_scale(x, x + W, 16, 4.0, x + LEVELS))
    put_all(m, best_scale(m + SCALES, m + SUMS, 16, 32.0, m + STEPS))


register("q3_K", encode_plain, encode_weighted)

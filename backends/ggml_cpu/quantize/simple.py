"""Quantizers for blocks of 32 values with a scale, or with a scale and the lowest value."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import Function, fn
from ggml_cpu.quantize.lanes import (
    LEVELS,
    SIGMA,
    W,
    X,
    divide,
    extreme,
    load_integers,
    load_lanes,
    mul,
    put,
    put_byte,
    put_half,
    weigh,
)
from ggml_cpu.quantize.offset import with_minimum
from ggml_cpu.quantize.symmetric import best_scale


@fn
def put_fifth_bits(m, to):
    """Store the fifth bits of 32 levels in four bytes."""
    for part in range(4):
        bits = v.i32x16(0)
        for i in range(8):
            bits = bits | ((load_integers(m + LEVELS, 8 * part + i) >> 4) << i)
        put_byte(m, to + part, bits)


def around_zero(n_max: int, put_levels: Function) -> tuple[Function, Function]:
    """Return (encode_plain, encode_weighted) for levels 0 .. 2 * n_max - 1, n_max for zero.

    Byte 0 has d.
    """

    @fn
    def encode_plain(m):
        d = extreme(m + X, 32) / v.float32(-n_max)
        factor = divide(v.f32x16(1.0), d)
        put_half(m, 0, d)
        for i in range(32):
            q = v.vtrunc(mul(load_lanes(m + X, i), factor) + (n_max + 0.5))
            put(m + LEVELS, i, v.vmin(q, 2.0 * n_max - 1.0))
        put_levels(m)

    @fn
    def encode_weighted(m):
        weigh(m + X, m + W, 32, v.f32x16_load(m + SIGMA))
        put_half(m, 0, best_scale(m + X, m + W, 32, v.float32(n_max), m + LEVELS))
        put_levels(m)

    return encode_plain, encode_weighted


def from_lowest(q_max: int, put_levels: Function) -> tuple[Function, Function]:
    """Return (encode_plain, encode_weighted) for levels 0 .. q_max.

    Byte 0 has d, byte 2 the lowest value.
    """

    @fn
    def encode_plain(m):
        low, high = load_lanes(m + X, 0), load_lanes(m + X, 0)
        for i in range(1, 32):
            low, high = v.vmin(load_lanes(m + X, i), low), v.vmax(load_lanes(m + X, i), high)
        d = (high - low) / v.float32(q_max)
        factor = divide(v.f32x16(1.0), d)
        put_half(m, 0, d)
        put_half(m, 2, low)
        for i in range(32):
            q = v.vtrunc(mul(load_lanes(m + X, i) - low, factor) + 0.5)
            put(m + LEVELS, i, v.vmin(q, v.float32(q_max)))
        put_levels(m)

    @fn
    def encode_weighted(m):
        weigh(m + X, m + W, 32, v.f32x16_load(m + SIGMA))
        d, minimum = with_minimum(
            m, m + X, m + W, 32, v.float32(q_max), -0.9, 0.05, 36, False, m + LEVELS
        )
        put_half(m, 0, d)
        put_half(m, 2, -minimum)
        put_levels(m)

    return encode_plain, encode_weighted


@fn
def round_away(x):
    """Round to the nearest integers, halves away from zero."""
    near = v.vtrunc(x)
    more = v.vabs(x - near) >= 0.5
    return v.select(more, near + v.copysign(v.f32x16(1.0), x), near)

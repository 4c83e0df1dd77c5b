"""Quantizers for blocks of 32 values with a scale, or with a scale and the lowest value."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import Function, fn
from ggml_cpu.quantize.lanes import (
    LEVELS,
    SIGMA,
    W,
    X,
    at,
    divided,
    extreme,
    mul,
    put,
    put_byte,
    put_half,
    weigh,
    whole,
)
from ggml_cpu.quantize.offset import with_minimum
from ggml_cpu.quantize.symmetric import best_scale


@fn
def put_fifth_bits(m, to):
    """Store the fifth bits of 32 levels in four bytes."""
    for part in range(4):
        bits = v.i32x16(0)
        for i in range(8):
            bits = bits | ((whole(m + LEVELS, 8 * part + i) >> 4) << i)
        put_byte(m, to + part, bits)


def around_zero(n_max: int, put_levels: Function) -> tuple[Function, Function]:
    """Return (plain, weighted) for levels 0 .. 2 * n_max - 1, n_max for zero; d at byte 0."""

    @fn
    def plain(m):
        d = extreme(m + X, 32) / v.float32(-n_max)
        factor = divided(v.f32x16(1.0), d)
        put_half(m, 0, d)
        for i in range(32):
            q = v.vtrunc(mul(at(m + X, i), factor) + (n_max + 0.5))
            put(m + LEVELS, i, v.vmin(q, 2.0 * n_max - 1.0))
        put_levels(m)

    @fn
    def weighted(m):
        weigh(m + X, m + W, 32, v.f32x16_load(m + SIGMA))
        put_half(m, 0, best_scale(m + X, m + W, 32, v.float32(n_max), m + LEVELS))
        put_levels(m)

    return plain, weighted


def from_lowest(q_max: int, put_levels: Function) -> tuple[Function, Function]:
    """Return (plain, weighted) for levels 0 .. q_max; d at byte 0, the lowest value at byte 2."""

    @fn
    def plain(m):
        low, high = at(m + X, 0), at(m + X, 0)
        for i in range(1, 32):
            low, high = v.vmin(at(m + X, i), low), v.vmax(at(m + X, i), high)
        d = (high - low) / v.float32(q_max)
        factor = divided(v.f32x16(1.0), d)
        put_half(m, 0, d)
        put_half(m, 2, low)
        for i in range(32):
            q = v.vtrunc(mul(at(m + X, i) - low, factor) + 0.5)
            put(m + LEVELS, i, v.vmin(q, v.float32(q_max)))
        put_levels(m)

    @fn
    def weighted(m):
        weigh(m + X, m + W, 32, v.f32x16_load(m + SIGMA))
        d, minimum = with_minimum(
            m, m + X, m + W, 32, v.float32(q_max), -0.9, 0.05, 36, False, m + LEVELS
        )
        put_half(m, 0, d)
        put_half(m, 2, -minimum)
        put_levels(m)

    return plain, weighted


@fn
def away(x):
    """Round to the nearest integers, halves away from zero."""
    near = v.vtrunc(x)
    more = v.vabs(x - near) >= 0.5
    return v.select(more, near + v.copysign(v.f32x16(1.0), x), near)

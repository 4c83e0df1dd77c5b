"""Quantization of group scales and minima to integer steps of an f16, then of levels."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.search import nearest
from ggml_cpu.kernel import Function, fn
from ggml_cpu.quantize.lanes import (
    LEVELS,
    MINIMA,
    MINIMUM_STEPS,
    SCALES,
    STEPS,
    SUMS,
    VECTOR,
    W,
    X,
    load_integers,
    load_lanes,
    mul,
    put,
    put_byte,
    put_half,
    ratio,
    round_and_clip,
    round_to_f16,
    sum_lanes,
    sum_of_squares,
    weigh,
)
from ggml_cpu.quantize.offset import with_minimum
from ggml_cpu.quantize.symmetric import positive_scale


@fn
def store_steps(values, groups, most, steps):
    """Store non-negative values as steps 0 .. most and return the value of a step."""
    top = v.f32x16(0.0)
    for g in range(groups):
        top = v.vmax(load_lanes(values, g), top)
    factor = ratio(v.f32x16(most), top)
    for g in range(groups):
        put(steps, g, v.vmin(nearest(mul(factor, load_lanes(values, g))), most))
    return top / most


@fn
def levels_again(m, groups, n, q_max, d, d_min):
    """Store levels q of x = d * step * q - d_min * minimum_step; unchanged if the scale is 0."""
    for g in range(groups):
        scale = mul(d, load_lanes(m + STEPS, g))
        minimum = mul(d_min, load_lanes(m + MINIMUM_STEPS, g))
        some = scale != 0.0
        scale = v.select(some, scale, v.f32x16(1.0))
        for i in range(n * g, n * g + n):
            q = round_and_clip((load_lanes(m + X, i) + minimum) / scale, 0.0, q_max)
            put(m + LEVELS, i, v.select(some, q, load_lanes(m + LEVELS, i)))


@fn
def levels_around(m, groups, n, n_max, d, steps):
    """Store levels q of x = d * step * (q - n_max); unchanged if the scale is 0."""
    for g in range(groups):
        scale = mul(d, load_lanes(steps, g))
        some = scale != 0.0
        scale = v.select(some, scale, v.f32x16(1.0))
        for i in range(n * g, n * g + n):
            q = round_and_clip(load_lanes(m + X, i) / scale, -n_max, n_max - 1.0) + n_max
            put(m + LEVELS, i, v.select(some, q, load_lanes(m + LEVELS, i)))


def with_scales_and_minima(
    groups: int, q_max: float, most: float, base: Function, search: tuple[float, float, int, bool]
) -> tuple[Function, Function]:
    """Return search_plain(m) and search_weighted(m, sigma2_of): scales and minima of groups.

    Both store levels and steps and return d and d_min.

    base     base(w, x, n): store a group's weights for `search_plain`
    search   start, step, number of tries, and True for absolute instead of squared errors
    """
    n = 256 // groups
    start, step, tries, absolute = search

    @fn
    def search_plain(m):
        for g in range(groups):
            x = m + X + n * VECTOR * g
            base(m + W, x, n)
            scale, minimum = with_minimum(
                m, x, m + W, n, q_max, start, step, tries, absolute, x + LEVELS
            )
            put(m + SCALES, g, scale)
            put(m + MINIMA, g, minimum)
        d = store_steps(m + SCALES, groups, most, m + STEPS)
        d_min = store_steps(m + MINIMA, groups, most, m + MINIMUM_STEPS)
        levels_again(m, groups, n, q_max, round_to_f16(d), round_to_f16(d_min))
        return d, d_min

    @fn
    def search_weighted(m, sigma2_of):
        sigma2 = mul(sum_of_squares(m + X, 256), v.f32x16(sigma2_of)) / 256.0
        for g in range(groups):
            x, w = m + X + n * VECTOR * g, m + W + n * VECTOR * g
            weigh(x, w, n, sigma2)
            put(m + SUMS, g, sum_lanes(w, n))
            scale, minimum = with_minimum(m, x, w, n, q_max, -0.9, 0.05, 36, False, x + LEVELS)
            put(m + SCALES, g, scale)
            put(m + MINIMA, g, minimum)
        d = positive_scale(m + SCALES, m + SUMS, groups, most, m + STEPS)
        d_min = positive_scale(m + MINIMA, m + SUMS, groups, most, m + MINIMUM_STEPS)
        levels_again(m, groups, n, q_max, round_to_f16(d), round_to_f16(d_min))
        return d, d_min

    return search_plain, search_weighted


@fn
def weigh_magnitude(w, x, n):
    for i in range(n):
        put(w, i, v.vabs(load_lanes(x, i)))


@fn
def weigh_magnitude_and_mean(w, x, n):
    mean = v.vsqrt(sum_of_squares(x, n) / v.float32(n))
    for i in range(n):
        put(w, i, mean + v.vabs(load_lanes(x, i)))


@fn
def put_six_bits(m, to):
    """Store eight 6-bit scales and minima in 12 bytes (ggml-quants.c:get_scale_min_k4)."""
    for g in range(4):
        scale, minimum = load_integers(m + STEPS, g), load_integers(m + MINIMUM_STEPS, g)
        scale2, minimum2 = load_integers(m + STEPS, g + 4), load_integers(m + MINIMUM_STEPS, g + 4)
        put_byte(m, to + g, scale | ((scale2 >> 4) << 6))
        put_byte(m, to + 4 + g, minimum | ((minimum2 >> 4) << 6))
        put_byte(m, to + 8 + g, (scale2 & 15) | ((minimum2 & 15) << 4))


@fn
def put_quarters(m, to):
    """Store 256 2-bit levels in 64 bytes: four levels of a half per byte, 32 apart."""
    for part in range(2):
        for i in range(32):
            q = load_integers(m + LEVELS, 128 * part + i) & 3
            for j in range(1, 4):
                q = q | ((load_integers(m + LEVELS, 128 * part + 32 * j + i) & 3) << (2 * j))
            put_byte(m, to + 32 * part + i, q)


@fn
def put_nibbles(m, to, n, x):
    """Store the low four bits of 2 * n levels in n bytes; the second half are high nibbles."""
    for i in range(n):
        low, high = load_integers(x, i) & 15, load_integers(x, n + i) & 15
        put_byte(m, to + i, low | (high << 4))


@fn
def put_factors(m, to, d, d_min):
    put_half(m, to, d)
    put_half(m, to + 2, d_min)

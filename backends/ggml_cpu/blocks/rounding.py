"""Helpers that quantize values to a block: maxima of 16-value vectors, scales, packed bits."""

from __future__ import annotations

import numpy as np

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.activations import max_magnitude
from ggml_cpu.kernel import fn

TINY = 1e-15  # groups with a smaller maximum become zero (ggml-quants.c:GROUP_MAX_EPS)
BITS = (1 << np.arange(16, dtype=np.int32)).tobytes()


@fn
def max_value(x, y):
    return v.vmaxval(v.vmax(x, y))


@fn
def min_value(x, y):
    return v.vminval(v.vmin(x, y))


@fn
def inverse(d):
    """Return 1 / d, or 0 for d 0."""
    if d == v.float32(0.0):
        return v.float32(0.0)
    return v.float32(1.0) / d


@fn
def round_away(x):
    """Round to i8, halves away from zero like C's roundf, exact for values just below a half."""
    whole = v.vtrunc(x)
    one = v.copysign(v.f32x16(1.0), x)
    return v.to_i8(v.to_i32(v.select(v.vabs(x - whole) >= 0.5, whole + one, whole)))


@fn
def extreme(src, x, y):
    """Return the value of largest magnitude of 32, the first of a tie; x and y are the values."""
    high, low = max_value(x, y), min_value(x, y)
    if high != -low:
        return high if high > -low else low
    for i in range(32):
        if abs(v.ld_f32(src + 4 * i)) == high:
            return v.ld_f32(src + 4 * i)
    return high


@fn
def store_nibbles(dst, q, r):
    """Store 16 bytes with the low nibbles of q and, as high nibbles, those of r."""
    v.store(dst, v.to_i8((q & 15) | ((r & 15) << 4)))


@fn
def store_largest(x, n, at):
    """Store the largest magnitude of n values as f16 at `at` and return its inverse."""
    scale = max_magnitude(x, n)
    v.st_f16(at, scale)
    return inverse(scale)


@fn
def ternary(x, factor):
    """Round 16 values, within -1..1 after multiplication by `factor`, to levels 0, 1 and 2."""
    return v.to_i32(round_away(v.f32x16_load(x) * factor)) + 1


@fn
def offset_levels(src, offset, at):
    """Store the f16 scale of 32 values at `at` and return their levels 0 .. 2 * offset - 1.

    Level `offset` is zero.
    """
    x, y = v.f32x16_load(src), v.f32x16_load(src + 64)
    scale = v.float32(extreme(src, x, y) / v.float32(-offset))
    factor, most = inverse(scale), v.i32x16(2 * offset - 1)
    v.st_f16(at, scale)
    q, r = v.to_i32(x * factor + (offset + 0.5)), v.to_i32(y * factor + (offset + 0.5))
    return v.vmin(q, most), v.vmin(r, most)


@fn
def levels_from_lowest(src, most, at):
    """Store scale and minimum of 32 values as two f16 at `at` and return their levels 0 .. most."""
    x, y = v.f32x16_load(src), v.f32x16_load(src + 64)
    low = min_value(x, y)
    scale = v.float32((max_value(x, y) - low) / v.float32(most))
    factor = inverse(scale)
    v.st_f16(at, scale)
    v.st_f16(at + 2, low)
    return v.to_i32((x - low) * factor + 0.5), v.to_i32((y - low) * factor + 0.5)


@fn
def store_scaled(bytes, n, scale, x):
    """Store n signed bytes times `scale` as f32, n a multiple of 16."""
    for i in range(0, n, 16):
        v.store(x + 4 * i, v.to_f32(v.to_i32(v.i8x16_load(bytes + i))) * scale)

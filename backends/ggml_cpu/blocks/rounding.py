"""What the quantizations of 32 values share: two vectors of 16, their extremes, packed bits."""

from __future__ import annotations

import numpy as np

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn

BITS = (1 << np.arange(16, dtype=np.int32)).tobytes()


@fn
def largest_of(x, y):
    return v.vmaxval(v.vmax(x, y))


@fn
def smallest_of(x, y):
    return v.vminval(v.vmin(x, y))


@fn
def inverse(d):
    """1 / d, or 0 for 0."""
    if d == v.float32(0.0):
        return v.float32(0.0)
    return v.float32(1.0) / d


@fn
def away(x):
    """Nearest integers as i8, halves away from zero; what is just below a half is not one."""
    whole = v.vtrunc(x)
    one = v.copysign(v.f32x16(1.0), x)
    return v.to_i8(v.to_i32(v.select(v.vabs(x - whole) >= 0.5, whole + one, whole)))


@fn
def extreme(src, x, y):
    """The first of 32 values of largest magnitude, with its sign; x and y are the values."""
    high, low = largest_of(x, y), smallest_of(x, y)
    if high != -low:
        return high if high > -low else low
    for i in range(32):
        if abs(v.ld_f32(src + 4 * i)) == high:
            return v.ld_f32(src + 4 * i)
    return high


@fn
def store_nibbles(dst, q, r):
    """16 bytes: low nibbles of q, then of r above them."""
    v.store(dst, v.to_i8((q & 15) | ((r & 15) << 4)))


@fn
def store_fifth_bits(dst, q, r):
    """Bit i is bit 4 of value i."""
    bits = v.i32x16_load(v.table(BITS))
    low = v.vsum(v.select((q & 16) != 0, bits, 0))
    v.st_u16(dst, low)
    v.st_u16(dst + 2, v.vsum(v.select((r & 16) != 0, bits, 0)))

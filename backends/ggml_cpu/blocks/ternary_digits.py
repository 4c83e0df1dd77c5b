"""Bytes of five base-3 digits: a byte is ceil(256 * number / 243). After multiplication by 3^n
modulo 256, the leading digit of the byte is digit n."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.rounding import ternary
from ggml_cpu.kernel import fn


@fn
def thrice(x):
    return x + x + x


@fn
def digits(packed):
    """Return the leading base-3 digits of bytes as fractions of 256: 1 above 1/3, 2 above 2/3."""
    x = packed ^ -128  # comparisons are signed
    return v.select(x > 170 - 128, v.i8x64(2), v.select(x > 85 - 128, v.i8x64(1), 0))


@fn
def fraction(number):
    """Convert numbers below 243 to bytes: ceil(256 * number / 243)."""
    scaled = v.to_f32(number * 256 + 242)
    return v.to_i8(v.to_i32((scaled + 0.5) * (1.0 / 243.0)))


@fn
def five_digits(x, apart, factor):
    """Encode 16 bytes of five digits; consecutive digits of a byte are `apart` bytes apart in x."""
    number = v.i32x16(0)
    for i in range(5):
        number = number * 3 + ternary(x + apart * i, factor)
    return fraction(number)

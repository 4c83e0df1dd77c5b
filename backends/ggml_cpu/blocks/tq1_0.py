"""tq1_0: 54 bytes: five values to a byte [32] and [16] | four to a byte [4] | scale f16.

A byte is the fraction that the values are the digits of, in base 3: number / 243, rounded upwards
to a multiple of 1 / 256.
"""

from __future__ import annotations

import numpy as np

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.rounding import away, inverse
from ggml_cpu.kernel import fn
from ggml_cpu.quants.activations import largest

BYTES = 54
PLACES = np.repeat(np.array([81, 27, 9, 3], np.int32), 4).tobytes()


@fn
def digit(src, factor):
    """16 values as digits."""
    return v.to_i32(away(v.f32x16_load(src) * factor)) + 1


@fn
def fraction(number):
    """Bytes of numbers below 243."""
    scaled = v.to_f32(number * 256 + 242)
    return v.to_i8(v.to_i32((scaled + 0.5) * (1.0 / 243.0)))


@fn
def five_digits(src, apart, factor):
    """16 bytes; a digit is `apart` bytes behind the one before."""
    number = v.i32x16(0)
    for i in range(5):
        number = number * 3 + digit(src + apart * i, factor)
    return fraction(number)


@fn
def quantize(src, n, dst):
    for _ in range(n // 256):
        scale = largest(src, 256)
        factor = inverse(scale)
        v.store(dst, five_digits(src, 128, factor))
        v.store(dst + 16, five_digits(src + 64, 128, factor))
        v.store(dst + 32, five_digits(src + 640, 64, factor))
        last = digit(src + 960, factor) * v.i32x16_load(v.table(PLACES))
        pairs = v.low(last) + v.high(last)
        v.store(dst + 48, fraction(v.low(pairs) + v.high(pairs)))
        v.st_f16(dst + 52, scale)
        src += 1024
        dst += BYTES


register("tq1_0", quantize=quantize)

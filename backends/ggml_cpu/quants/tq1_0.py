"""tq1_0: 256 values -1, 0 or 1 with one scale, 54 bytes (ggml-common.h:block_tq1_0).

Five values to a byte [32] and [16] | four to a byte [4] | d f16. A byte is a fraction of 256 in
base 3: times 3^n modulo 256, its leading digit is value n. First come the first digits of all
bytes of a part, then the second digits...
"""

from __future__ import annotations

import numpy as np

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quants.unpacked import Decoder, weight
from ggml_cpu.quants.weight import register
from ggml_py.types import BY_NAME

SECOND, THIRD, D = 32, 48, 52
POWERS = np.repeat(np.array([1, 3, 9, 27], np.int16), 4).tobytes()


@fn
def thrice(x):
    return x + x + x


@fn
def digits(packed):
    """Leading digits of fractions: 1 above a third, 2 above two thirds."""
    x = packed ^ -128  # comparisons are signed
    return v.select(x > 170 - 128, v.i8x64(2), v.select(x > 85 - 128, v.i8x64(1), 0))


@fn
def bytes_of(block, j):
    x = v.i8x32_load(block)
    if j == 0:
        return digits(v.concat(x, thrice(x)))
    if j == 1:
        x = thrice(thrice(x))
        return digits(v.concat(x, thrice(x)))
    y = v.i8x16_load(block + SECOND)
    if j == 2:
        x = thrice(thrice(thrice(thrice(x))))
        return digits(v.concat(x, v.concat(y, thrice(y))))
    y = thrice(thrice(y))
    z = v.zext_i16(v.as_i8(v.i32x4(v.ld_u32(block + THIRD))))
    z = v.to_i8(z * v.i16x16_load(v.table(POWERS)))
    return digits(v.concat(v.concat(y, thrice(y)), v.concat(thrice(thrice(y)), z)))


@fn
def scales_of(block, j):
    return v.f32x2(v.ld_f16(block + D))


register(weight(Decoder(BY_NAME["tq1_0"], 32, bytes_of, scales_of, offset=1, cheap=True)))

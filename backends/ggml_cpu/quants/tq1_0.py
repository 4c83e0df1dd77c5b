"""tq1_0: 256 values -1, 0 or 1 with one scale, 54 bytes (ggml-common.h:block_tq1_0).

Five values per byte u8 [32] and [16] | four values per byte u8 [4] | d f16. The values plus 1 are
the base-3 digits of a number; a byte is ceil(256 * number / 243). After multiplication by 3^n
modulo 256, the leading digit of the byte is value n. In each of the three parts, the first digits
of all bytes are the first values, the second digits the next values, and so on.
"""

from __future__ import annotations

import numpy as np

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.rounding import store_largest, ternary
from ggml_cpu.blocks.ternary_digits import digits, five_digits, fraction, thrice
from ggml_cpu.blocks.unpacked import one_scale, weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_K import CHUNKS

SECOND, THIRD, D = 32, 48, 52
POWERS = np.repeat(np.array([1, 3, 9, 27], np.int16), 4).tobytes()
PLACES = np.repeat(np.array([81, 27, 9, 3], np.int32), 4).tobytes()


@fn
def load_bytes(block, j):
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
def encode(x, block):
    factor = store_largest(x, 256, block + D)
    v.store(block, five_digits(x, 128, factor))
    v.store(block + 16, five_digits(x + 64, 128, factor))
    v.store(block + SECOND, five_digits(x + 640, 64, factor))
    last = ternary(x + 960, factor) * v.i32x16_load(v.table(PLACES))
    pairs = v.low(last) + v.high(last)
    v.store(block + THIRD, fraction(v.low(pairs) + v.high(pairs)))


register(weight("tq1_0", CHUNKS, 32, load_bytes, one_scale(D), offset=1, whole=True, encode=encode))

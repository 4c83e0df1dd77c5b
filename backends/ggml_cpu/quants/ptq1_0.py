"""ptq1_0: 128 values -1, 0 or 1 with one scale, 28 bytes (PrismML's llama.cpp).

Five values per byte u8 [16] and [8] | four values per byte u8 [2] | d f16, see
`blocks/ternary_digits.py`. In each of the three parts, the first digits of all bytes are the first
values, the second digits the next values, and so on.
"""

from __future__ import annotations

import numpy as np

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.rounding import store_largest, ternary
from ggml_cpu.blocks.ternary_digits import digits, five_digits, fraction, thrice
from ggml_cpu.blocks.unpacked import one_scale, weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_0 import CHUNKS

SECOND, THIRD, D = 16, 24, 26
POWERS = np.repeat(np.array([1, 3, 9, 27], np.int16), 2).tobytes()
PLACES = np.array([0] * 8 + [81, 81, 27, 27, 9, 9, 3, 3], np.int32).tobytes()


@fn
def load_bytes(block, j):
    x = v.i8x16_load(block)
    if j == 0:
        x = v.concat(x, thrice(x))
        return digits(v.concat(x, thrice(thrice(x))))
    x = thrice(thrice(thrice(thrice(x))))
    y = v.i8x8_load(block + SECOND)
    y = v.concat(y, thrice(y))
    four = v.concat(y, thrice(thrice(y)))
    y = thrice(thrice(thrice(thrice(v.i8x8_load(block + SECOND)))))
    z = v.zext_i16(v.as_i8(v.i16x4(v.ld_u16(block + THIRD))))
    z = v.to_i8(z * v.i16x8_load(v.table(POWERS)))
    return digits(v.concat(v.concat(x, v.low(four)), v.concat(v.high(four), v.concat(y, z))))


@fn
def encode(x, block):
    factor = store_largest(x, 128, block + D)
    v.store(block, five_digits(x, 64, factor))
    v.store(block + SECOND, v.low(five_digits(x + 320, 32, factor)))
    last = v.high(ternary(x + 448, factor) * v.i32x16_load(v.table(PLACES)))
    pairs = v.low(last) + v.high(last)
    v.store(block + THIRD, fraction(v.low(pairs) + v.high(pairs)))


register(weight("ptq1_0", CHUNKS, 32, load_bytes, one_scale(D), offset=1, encode=encode))

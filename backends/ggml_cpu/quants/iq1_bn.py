"""iq1_bn: 64 values -1, 0 or 1, 15 bytes (ik_llama.cpp's block_iq1_bn).

d f16 | u8 [4][3], five ternary digits each: 15 values of a group of 16 | u8, digit g is the last
value of group g. A table has the five digits of each byte.
"""

from __future__ import annotations

import numpy as np

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.unpacked import one_scale, weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_0 import CHUNKS

FIVE, LAST = 2, 14


def _digits() -> bytes:
    fractions = np.arange(256)[:, None] * np.array([81, 27, 9, 3, 1]) % 256
    return np.pad(((fractions + fractions // 2) >> 7).astype(np.uint8), ((0, 0), (0, 3))).tobytes()


DIGITS = _digits()


@fn
def digits(byte):
    return v.ld_i64(v.table(DIGITS) + 8 * byte)


@fn
def load_bytes(block, j):
    x, last = v.i64x8(0), digits(v.ld_u8(block + LAST))
    for g in range(4):
        at = block + FIVE + 3 * g
        first, second, third = (
            digits(v.ld_u8(at)),
            digits(v.ld_u8(at + 1)),
            digits(v.ld_u8(at + 2)),
        )
        x = v.set_lane(x, 2 * g, first | second << 40)
        upper = second >> 24 | third << 16 | ((last >> (8 * g)) & 255) << 56
        x = v.set_lane(x, 2 * g + 1, upper)
    return v.as_i8(x)


register(weight("iq1_bn", CHUNKS, 32, load_bytes, one_scale(0), offset=1))

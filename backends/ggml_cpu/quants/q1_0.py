"""q1_0: 128 signs with one scale, 18 bytes (ggml-common.h:block_q1_0).

d f16, the mean of the magnitudes | bits [128], 1 for d and 0 for -d
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.rounding import BITS
from ggml_cpu.blocks.unpacked import one_scale, weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_0 import CHUNKS


@fn
def load_bytes(block, j):
    return v.i8x64(1)


@fn
def load_signs(block, j):
    return ~v.ld_i64(block + 2 + 8 * j)


@fn
def encode(x, block):
    total = v.float32(0.0)
    for i in range(128):  # sequential, because the order determines rounding
        total = v.float32(total + abs(v.ld_f32(x + 4 * i)))
    v.st_f16(block, v.float32(total / v.float32(128.0)))
    bits = v.i32x16_load(v.table(BITS))
    for g in range(8):
        positive = v.f32x16_load(x + 64 * g) >= 0.0
        v.st_u16(block + 2 + 2 * g, v.vsum(v.select(positive, bits, 0)))


register(
    weight("q1_0", CHUNKS, 32, load_bytes, one_scale(0), load_signs, cheap=True, encode=encode)
)

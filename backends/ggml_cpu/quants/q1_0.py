"""q1_0: 128 signs with one scale, 18 bytes (ggml-common.h:block_q1_0).

d f16 | bits [128], 1 for d and 0 for -d
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quants.unpacked import Decoder, weight
from ggml_cpu.quants.weight import register
from ggml_py.types import BY_NAME


@fn
def bytes_of(block, j):
    return v.i8x64(1)


@fn
def signs_of(block, j):
    return ~v.ld_i64(block + 2 + 8 * j)


@fn
def scales_of(block, j):
    return v.f32x2(v.ld_f16(block))


register(weight(Decoder(BY_NAME["q1_0"], 32, bytes_of, scales_of, signs_of, cheap=True)))

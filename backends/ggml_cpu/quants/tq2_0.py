"""tq2_0: 256 values -1, 0 or 1 with one scale, 66 bytes (ggml-common.h:block_tq2_0).

u8 [2][32], four 2-bit values per byte, offset by 1 and 32 apart | d f16
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.rounding import store_largest, ternary
from ggml_cpu.blocks.unpacked import one_scale, weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_K import CHUNKS

D = 64


@fn
def load_bytes(block, j):
    packed = v.i8x32_load(block + j // 2 * 32) >> (j % 2 * 4)
    return v.concat(packed, packed >> 2) & 3


@fn
def encode(x, block):
    factor = store_largest(x, 256, block + D)
    for u in range(4):  # half, part of 16
        packed = v.i32x16(0)
        for j in range(4):
            at = x + 512 * (u // 2) + 128 * j + 64 * (u % 2)
            packed = packed | ternary(at, factor) << (2 * j)
        v.store(block + 16 * u, v.to_i8(packed))


register(weight("tq2_0", CHUNKS, 32, load_bytes, one_scale(D), offset=1, whole=True, encode=encode))

"""pq2_0: 128 2-bit values offset by 1 with one scale, 34 bytes (PrismML's llama.cpp).

d f16 | u8 [32], four consecutive values per byte
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.rounding import store_largest, ternary
from ggml_cpu.blocks.unpacked import one_scale, weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_0 import CHUNKS


@fn
def load_bytes(block, j):
    packed = v.zext_i32(v.i8x16_load(block + 2 + 16 * j))
    apart = packed | packed << 6 | packed << 12 | packed << 18
    return v.as_i8(apart & 0x03030303)


@fn
def encode(x, block):
    factor = store_largest(x, 128, block)
    for i in range(8):
        q = ternary(x + 64 * i, factor)
        q = v.select(q > 3, v.i32x16(3), q)
        words = v.as_i32(v.to_i8(q))
        v.store(block + 2 + 4 * i, v.to_i8(words | words >> 6 | words >> 12 | words >> 18))


register(weight("pq2_0", CHUNKS, 32, load_bytes, one_scale(0), offset=1, encode=encode))

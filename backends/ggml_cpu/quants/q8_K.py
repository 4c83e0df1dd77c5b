"""q8_K: 256 int8 with one scale, 292 bytes (ggml-common.h:block_q8_K); activations only.

Block: scale f32 | i8 [256] | i16 [16], sums of 16 values
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.activations import (
    BYTES_256,
    CHUNK,
    CHUNK_BYTES,
    OFFSETS_256,
    SCALE_256,
    SUMS16_256,
    SUMS32_256,
    Activations,
    half_chunk,
    max_magnitude,
    over_127,
    quantize_16,
)
from ggml_cpu.blocks.format import Format, register
from ggml_cpu.blocks.rounding import inverse, store_scaled
from ggml_cpu.blocks.walk import dequantize
from ggml_cpu.kernel import fn
from ggml_py.types import BY_NAME


@fn
def put_sum(to, i, total):
    """Store i16 sum i in the order of activations.py: 0 2 1 3, 4 6 5 7, ..."""
    v.st_i16(to + 8 * (i // 4) + 4 * (i & 1) + (i & 2), total)


@fn
def pack(x, n, to):
    """Quantize one block of 256 values like ggml-quants.c:quantize_row_q8_K_ref."""
    scale = over_127(max_magnitude(x, 256))
    for i in range(8):
        first = quantize_16(x + 128 * i, scale, to + 32 * i)
        second = quantize_16(x + 128 * i + 64, scale, to + 32 * i + 16)
        put_sum(to + SUMS16_256, 2 * i, first)
        put_sum(to + SUMS16_256, 2 * i + 1, second)
        put_sum(to + SUMS32_256, i, first + second)
        v.st_i32(to + OFFSETS_256 + 8 * i, -32 * first)
        v.st_i32(to + OFFSETS_256 + 8 * i + 4, -32 * second)
    v.st_f32(to + SCALE_256, inverse(scale))


@fn
def pack_chunks(x, n, to):
    """Quantize one block of 256 values to four chunks with the same scale."""
    scale = over_127(max_magnitude(x, 256))
    step = inverse(scale)
    for i in range(8):
        half_chunk(x + 128 * i, scale, step, to + i // 2 * CHUNK_BYTES, i % 2)


ACTIVATIONS = Activations("q8_K", 256, BYTES_256, pack)
CHUNKS = Activations("q8_K_chunks", CHUNK, CHUNK_BYTES, pack_chunks)


@fn
def decode(block, x):
    store_scaled(block + 4, 256, v.ld_f32(block), x)


Q8_K = BY_NAME["q8_K"]
register(Format(type=Q8_K, dequantize=dequantize(Q8_K, decode)))

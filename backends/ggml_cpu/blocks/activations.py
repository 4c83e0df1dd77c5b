"""Activation formats: quantization or rounding of src1, and its layout in packed columns.

A column is a packed row of src1: a sequence of blocks of 32-bit words. A block starts with its
values, each word 4, 2 or 1 of them along k; the other fields follow. In a tile of T columns, word i
of column t has offset 4 * (i * T + t); a tile of width 1 is a plain column. For CPUs that multiply
more than one word per operand (amx.py, bf16_squares.py), G words of a column are adjacent: word i
of a block has offset 4 * (i // G * G * T + G * t + i % G).
`quants/<type>.py` packs the blocks; this module defines the offsets of their fields.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.tiles import find_tile
from ggml_cpu.kernel import Function, fn
from ggml_cpu.target import LANES, TILE

UNIT = 256  # elements of a column packed per call
UNIT_BYTES = 1024  # bytes of UNIT elements in the widest format


@dataclass(frozen=True)
class Activations:
    """Activation format: `block_bytes` per `elements` of a column.

    pack(x, n, to): convert n <= UNIT f32 values at x to blocks at `to`.
    together: adjacent words of one column in a tile.
    tile: columns of a full tile; find_tile: see tiles.py.
    """

    name: str
    elements: int
    block_bytes: int
    pack: Function
    together: int = 1
    tile: int = TILE
    find_tile: Function = find_tile

    @cached_property
    def column_bytes(self) -> Callable[[int], int]:
        """An `@fn`, column_bytes(k): bytes of k elements of a column, from a block's start on."""
        elements, block_bytes = self.elements, self.block_bytes

        @fn
        def column_bytes(k: int) -> int:
            return (k + elements - 1) // elements * block_bytes

        return column_bytes

    @cached_property
    def spread(self) -> Function:
        """An `@fn`, spread(column, n_bytes, tile, width, t): copy a column into column t of a
        tile.
        """
        together, line = self.together, 4 * self.together

        @fn
        def word_by_word(column, n_bytes, tile, width, t):
            for i in range(n_bytes // 4):
                v.st_i32(tile + 4 * (i * width + t), v.ld_i32(column + 4 * i))

        @fn
        def side_by_side(column, n_bytes, tile, width, t):
            for i in range(n_bytes // line):
                for j in range(0, line, 4):
                    v.st_i32(tile + line * (i * width + t) + j, v.ld_i32(column + line * i + j))

        @fn
        def by_vectors(column, n_bytes, tile, width, t):
            for i in range(n_bytes // line):
                v.store(tile + line * (i * width + t), v.i32_load(column + line * i))

        if together == LANES:
            return by_vectors
        return side_by_side if together > 1 else word_by_word


@fn
def quantize_16(x, scale, to):
    """Round 16 values times `scale` to int8 and return their sum."""
    q = v.to_i32(v.vround(v.f32x16_load(x) * scale))
    v.store(to, v.to_i8(q))
    return v.vsum(q)


@fn
def max_magnitude(x, n):
    """Return the largest magnitude of n values, n a multiple of 16."""
    top = v.vabs(v.f32x16_load(x))
    for i in range(16, n, 16):
        top = v.vmax(top, v.vabs(v.f32x16_load(x + 4 * i)))
    return v.vmaxval(top)


@fn
def over_127(amax):
    """Return 127 / amax, or 0 for amax 0."""
    if amax > 0:
        return v.float32(127) / amax
    return v.float32(0)


@fn
def as_f16(x):
    return v.f16_to_f32(v.f32_to_f16(x))


# Blocks of 32: i8 [32] | f32 scale | i32 -8 * sum | i32 -I8_BIAS * sum | f32 scale * sum
SCALE_32, SUM8_32, BIAS_32, SUM_32, BYTES_32 = 32, 36, 40, 44, 48

# Blocks of 256: i8 [256] | f32 scale | i16 sums of 32 [8] | i16 sums of 16 [16] | i32 -32 * sums of
# 16 [16] | unused 12
# The i16 sums have the order 0 2 1 3, 4 6 5 7, ...: masks and shifts split a word of four scales
# into bytes 0 and 2, then bytes 1 and 3.
SCALE_256, SUMS32_256, SUMS16_256, OFFSETS_256, BYTES_256 = 256, 260, 276, 308, 384

# Chunks of 64: i8 [64] | f32 scales of 32 [2] | i32 -OFFSET * sums of 32 [2] | i32 -OFFSET * sums
# of 16 [4]. For weights stored as bytes with OFFSET added.
OFFSET = 64
CHUNK, CHUNK_SCALE, CHUNK_SUM32, CHUNK_SUM16, CHUNK_BYTES = 64, 64, 72, 80, 96


@fn
def half_chunk(x, scale, step, to, i):
    """Store 32 values times `scale` as half i of a chunk, with sums and the f32 scale `step`."""
    first = quantize_16(x, scale, to + 32 * i)
    second = quantize_16(x + 64, scale, to + 32 * i + 16)
    v.st_f32(to + CHUNK_SCALE + 4 * i, step)
    v.st_i32(to + CHUNK_SUM32 + 4 * i, -OFFSET * (first + second))
    v.st_i32(to + CHUNK_SUM16 + 8 * i, -OFFSET * first)
    v.st_i32(to + CHUNK_SUM16 + 8 * i + 4, -OFFSET * second)


def _f32_packer(rounded: Function) -> Function:
    @fn
    def pack(x, n, to):
        for i in range(0, n, v.LANES):
            v.store_n(to + 4 * i, rounded(v.f32_load_n(x + 4 * i, n - i)), n - i)

    return pack


@fn
def identity(x):
    return x


@fn
def as_bf16(x):
    return v.bf16_to_f32(v.f32_to_bf16(x))


@fn
def pack_bf16_pairs(x, n, to):
    """Pack f32 values as bf16, two per word; pad an odd n with a zero."""
    for i in range(0, n, v.LANES):
        halves = v.f32_to_bf16(v.f32_load_n(x + 4 * i, n - i))
        v.store_n(to + 2 * i, halves, (n - i + 1) // 2 * 2)


F32 = Activations("f32", 1, 4, _f32_packer(identity))
F16 = Activations("f16", 1, 4, _f32_packer(as_f16))
BF16 = Activations("bf16", 1, 4, _f32_packer(as_bf16))
BF16_PAIRS = Activations("bf16_pairs", 2, 4, pack_bf16_pairs)

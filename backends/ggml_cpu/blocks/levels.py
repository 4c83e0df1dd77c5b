"""Lookup tables of 16 levels indexed by nibbles (ggml-common.h:kvalues_iq4nl, kvalues_mxfp4)."""

from __future__ import annotations

import numpy as np

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn

# Uneven levels (kvalues_iq4nl); 4-bit floats (E2M1) times 2, which makes them integers.
UNEVEN = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
DOUBLED_FP4 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


def pack_levels(levels: tuple[int, ...]) -> bytes:
    return np.array(levels, np.int8).tobytes()


UNEVEN_TABLE = pack_levels(UNEVEN)
HALFWAY = ((np.array(UNEVEN[1:]) + np.array(UNEVEN[:-1])) / 2).astype(np.float32).tobytes()
FP4_FLOATS = np.array(DOUBLED_FP4, np.float32).tobytes()


@fn
def both_levels(levels, packed):
    """Return the levels of the low nibbles and of the high nibbles."""
    return v.lookup16(levels, packed & 15), v.lookup16(levels, (packed >> 4) & 15)


@fn
def store_levels(src, table, scale, dst):
    """Convert 16 bytes of nibbles to 32 levels times `scale`, low nibbles first."""
    low, high = both_levels(v.i8x16_load(table), v.i8x16_load(src))
    v.store(dst, v.to_f32(v.to_i32(low)) * scale)
    v.store(dst + 64, v.to_f32(v.to_i32(high)) * scale)


@fn
def nearest_uneven(x):
    """Return the index of the level nearest to x; between two levels, the upper index."""
    index = v.i32x16(0)
    for i in range(15):
        index = index + v.select(x >= v.ld_f32(v.table(HALFWAY) + 4 * i), v.i32x16(1), 0)
    return index


@fn
def uneven_levels(index):
    return v.to_f32(v.to_i32(v.lookup16(v.i8x16_load(v.table(UNEVEN_TABLE)), v.to_i8(index))))


@fn
def nearest_fp4(x, scale):
    """Return the index i that minimizes |level[i] * scale - x|; of equal errors, the first."""
    least, index = v.vabs(x), v.i32x16(0)
    for i in range(1, 16):
        error = v.vabs(v.ld_f32(v.table(FP4_FLOATS) + 4 * i) * scale - x)
        index = v.select(error < least, v.i32x16(i), index)
        least = v.vmin(least, error)
    return index

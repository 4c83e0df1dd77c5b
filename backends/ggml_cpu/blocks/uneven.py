"""The 16 unevenly spaced levels of iq4_nl and iq4_xs (ggml-common.h:kvalues_iq4nl)."""

from __future__ import annotations

import numpy as np

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn

LEVELS = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]
FIRST = float(LEVELS[0])
TABLE = np.array(LEVELS, np.int8).tobytes()
HALFWAY = ((np.array(LEVELS[1:]) + np.array(LEVELS[:-1])) / 2).astype(np.float32).tobytes()


@fn
def store_levels(src, table, scale, dst):
    """16 bytes of nibbles to 32 levels times `scale`, low nibbles first."""
    levels, packed = v.i8x16_load(table), v.i8x16_load(src)
    low, high = v.lookup16(levels, packed & 15), v.lookup16(levels, (packed >> 4) & 15)
    v.store(dst, v.to_f32(v.to_i32(low)) * scale)
    v.store(dst + 64, v.to_f32(v.to_i32(high)) * scale)


@fn
def nearest_level(x):
    """Index of the level next to x; the upper one when two are equally far."""
    index = v.i32x16(0)
    for i in range(15):
        index = index + v.select(x >= v.ld_f32(v.table(HALFWAY) + 4 * i), v.i32x16(1), 0)
    return index


@fn
def level_at(index):
    return v.to_f32(v.to_i32(v.lookup16(v.i8x16_load(v.table(TABLE)), v.to_i8(index))))

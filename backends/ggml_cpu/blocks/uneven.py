"""Quantizing to the 16 unevenly spaced levels of iq4_nl."""

from __future__ import annotations

import numpy as np

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quants.levels import UNEVEN, table_of

FIRST = float(UNEVEN[0])
TABLE = table_of(UNEVEN)
HALFWAY = ((np.array(UNEVEN[1:]) + np.array(UNEVEN[:-1])) / 2).astype(np.float32).tobytes()


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

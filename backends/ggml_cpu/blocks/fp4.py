"""Quantizing to four-bit floats (e2m1), whose levels are doubled so that they are integers."""

from __future__ import annotations

import numpy as np

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quants.levels import DOUBLED_FP4

LEVELS = np.array(DOUBLED_FP4, np.float32).tobytes()


@fn
def nearest_level(x, scale):
    """Index of the level with level * scale next to x; the first of equals."""
    least, index = v.vabs(x), v.i32x16(0)
    for i in range(1, 16):
        error = v.vabs(v.ld_f32(v.table(LEVELS) + 4 * i) * scale - x)
        index = v.select(error < least, v.i32x16(i), index)
        least = v.vmin(least, error)
    return index

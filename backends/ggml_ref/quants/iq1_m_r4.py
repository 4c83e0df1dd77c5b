"""iq1_m_r4: 16 groups of two points of 2048, each with a delta, x = d·code·(point ± 1/8)."""

from __future__ import annotations

from functools import cache

import numpy as np

from ggml_ref.quants import _grid as codebook
from ggml_ref.quants._blocks import F32
from ggml_ref.quants._coded import PointFormat


@cache
def shift_points() -> F32:
    """Return the points with each of the two deltas."""
    points = codebook.points("iq1")
    return np.concatenate([points + delta for delta in codebook.DELTA])


FIELDS = (("index", "i32 x8"), ("index+8", "i32 b4"), ("code", "g16 b4"))
TYPE = PointFormat("<f2", FIELDS, np.arange(16, dtype=np.float32), 16, shift_points)
dequantize, approximate = TYPE.dequantize, TYPE.approximate

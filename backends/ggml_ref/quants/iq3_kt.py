"""iq3_kt: 8 groups of four 16-bit indices of points of 8 magnitudes, x = ±d·code·magnitude."""

from __future__ import annotations

from functools import cache

import numpy as np

from ggml_ref.quants._blocks import F32
from ggml_ref.quants._coded import PointFormat
from ggml_ref.quants._trellis import points


@cache
def magnitudes() -> F32:
    return np.abs(points(16, 8))


FIELDS = (("code", "m4 t2 b4 > t m b"), ("index", "i32 x16"), ("minus", "j32 e8 > e j"))
TYPE = PointFormat("<f4", FIELDS, np.arange(16, dtype=np.float32), 32, magnitudes)
dequantize, approximate = TYPE.dequantize, TYPE.approximate

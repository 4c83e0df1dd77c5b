"""iq6_k: 16 groups of 16 six-bit indices of uneven levels, x = d·scale·level, int8 scales."""

from __future__ import annotations

import numpy as np

from ggml_ref.quants._coded import PointFormat
from ggml_ref.quants._ik_levels import iq6

FIELDS = (
    ("shift", "g16"),
    ("code", "g16 x8"),
    ("index", "B4 j32 p2 b4 > B p j b"),
    ("index+4", "H2 j32 r4 b2 > H r j b"),
)
TYPE = PointFormat("<f2", FIELDS, np.arange(256).astype(np.int8).astype(np.float32), 16, iq6)
dequantize, approximate = TYPE.dequantize, TYPE.approximate

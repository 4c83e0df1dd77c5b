"""iq2_k: 16 groups of 16 two-bit indices of uneven levels, x = d·(code - 8)·level."""

from __future__ import annotations

from ggml_ref.quants._coded import PointFormat
from ggml_ref.quants._ik_levels import around, iq2

FIELDS = (("shift", "g16"), ("code", "g16 b4"), ("index", "H2 j32 q4 b2 > H q j b"))
TYPE = PointFormat("<f2", FIELDS, around(8), 16, iq2)
dequantize, approximate = TYPE.dequantize, TYPE.approximate

"""iq2_ks: 8 groups of 32 two-bit indices of uneven levels, x = d·(code - 16)·level."""

from __future__ import annotations

from ggml_ref.quants._coded import PointFormat
from ggml_ref.quants._ik_levels import around, iq2

FIELDS = (("shift", "g8"), ("code+4", "g8"), ("code", "g8 b4"), ("index", "H2 j32 q4 b2 > H q j b"))
TYPE = PointFormat("<f2", FIELDS, around(16), 32, iq2)
dequantize, approximate = TYPE.dequantize, TYPE.approximate

"""iq2_kl: 8 groups of 16 five-bit indices of pairs of values, x = d·(code - 32)·value."""

from __future__ import annotations

from ggml_ref.quants._coded import PointFormat
from ggml_ref.quants._ik_levels import around, pairs

FIELDS = (
    ("code+4", "g8 b2"),
    ("code", "m4 t2 b4 > t m b"),
    ("index", "B4 j16 h2 b4 > B h j b"),
    ("index+4", "j16 e8 > e j"),
)
TYPE = PointFormat("<f2", FIELDS, around(32), 32, pairs)
dequantize, approximate = TYPE.dequantize, TYPE.approximate

"""iq3_ks: 8 groups of 32 three-bit indices of uneven levels, x = d·(code - 16)·level."""

from __future__ import annotations

from ggml_ref.quants._coded import PointFormat
from ggml_ref.quants._ik_levels import around, iq3

FIELDS = (
    ("code+4", "g8"),
    ("shift", "g8"),
    ("code", "m4 t2 b4 > t m b"),
    ("index", "H2 j32 q4 b2 > H q j b"),
    ("index+2", "j32 e8 > e j"),
)
TYPE = PointFormat("<f2", FIELDS, around(16), 32, iq3)
dequantize, approximate = TYPE.dequantize, TYPE.approximate

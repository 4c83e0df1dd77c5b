"""iq5_k: 16 groups of 16 five-bit indices of uneven levels, x = d·(code - 32)·level."""

from __future__ import annotations

from ggml_ref.quants._coded import PointFormat
from ggml_ref.quants._ik_levels import around, iq5

FIELDS = (
    ("shift", "g16"),
    ("code+4", "g16 b2"),
    ("code", "g16 b4"),
    ("index", "B4 j32 p2 b4 > B p j b"),
    ("index+4", "j32 e8 > e j"),
)
TYPE = PointFormat("<f2", FIELDS, around(32), 16, iq5)
dequantize, approximate = TYPE.dequantize, TYPE.approximate

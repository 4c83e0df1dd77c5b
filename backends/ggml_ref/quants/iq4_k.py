"""iq4_k: 16 groups of 16 four-bit indices of uneven levels, x = d·(code - 32)·level."""

from __future__ import annotations

from ggml_ref.quants._coded import PointFormat
from ggml_ref.quants._ik_levels import around, iq4

FIELDS = (
    ("shift", "g16"),
    ("code+4", "g16 b2"),
    ("code", "g16 b4"),
    ("index", "s8 j16 h2 b4 > s h j b"),
)
TYPE = PointFormat("<f2", FIELDS, around(32), 16, iq4)
dequantize, approximate = TYPE.dequantize, TYPE.approximate

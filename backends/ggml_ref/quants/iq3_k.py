"""iq3_k: 16 groups of 16 three-bit indices of uneven levels, x = ±d·(2·code + 1)·level."""

from __future__ import annotations

from ggml_ref.quants._coded import PointFormat
from ggml_ref.quants._ik_levels import SIGNED_ODD, iq3

FIELDS = (
    ("shift", "g16"),
    ("code+4", "g16"),
    ("code", "g16 b4"),
    ("index", "H2 j32 q4 b2 > H q j b"),
    ("index+2", "j32 e8 > e j"),
)
TYPE = PointFormat("<f2", FIELDS, SIGNED_ODD, 16, iq3)
dequantize, approximate = TYPE.dequantize, TYPE.approximate

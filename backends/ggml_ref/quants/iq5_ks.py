"""iq5_ks: 8 groups of 32 five-bit indices of uneven levels, x = d·((scale & 254) - 127)·level.

Bit 0 of a scale shifts the levels of its group.
"""

from __future__ import annotations

from ggml_ref.quants._coded import PointFormat
from ggml_ref.quants._ik_levels import EVEN_127, iq5

FIELDS = (("code", "g8 x8"), ("index", "B4 j32 p2 b4 > B p j b"), ("index+4", "j32 e8 > e j"))
TYPE = PointFormat("<f4", FIELDS, EVEN_127, 32, iq5, in_code=True)
dequantize, approximate = TYPE.dequantize, TYPE.approximate

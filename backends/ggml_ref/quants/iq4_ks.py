"""iq4_ks: 8 groups of 32 four-bit indices of uneven levels, x = d·((scale & 254) - 127)·level.

Bit 0 of a scale shifts the levels of its group.
"""

from __future__ import annotations

from ggml_ref.quants._coded import PointFormat
from ggml_ref.quants._ik_levels import EVEN_127, iq4

FIELDS = (("code", "g8 x8"), ("index", "s8 j16 h2 b4 > s h j b"))
TYPE = PointFormat("<f4", FIELDS, EVEN_127, 32, iq4, in_code=True)
dequantize, approximate = TYPE.dequantize, TYPE.approximate

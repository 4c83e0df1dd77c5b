"""iq2_kt: 8 groups of four 16-bit indices of points of 8 values, x = d·level[code]·value."""

from __future__ import annotations

from functools import partial

from ggml_ref.quants._coded import PointFormat
from ggml_ref.quants._ik_levels import UNEVEN
from ggml_ref.quants._trellis import points

FIELDS = (("code", "m4 t2 b4 > t m b"), ("index", "i32 x16"))
TYPE = PointFormat("<f4", FIELDS, UNEVEN, 32, partial(points, 16, 8))
dequantize, approximate = TYPE.dequantize, TYPE.approximate

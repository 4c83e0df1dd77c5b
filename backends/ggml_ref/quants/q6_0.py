"""q6_0: 32 six-bit values around 32 with one half scale, x = d·(q - 32)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants import _blocks as block
from ggml_ref.quants._blocks import F32
from ggml_ref.quants._coded import PointFormat


def points() -> F32:
    return np.arange(-32, 32, dtype=np.float32)[:, None]


FIELDS = (("index+4", "y8 n2 h2 b2 > h n y b"), ("index", "j16 h2 b4 > h j b"))
TYPE = PointFormat("<f2", FIELDS, np.ones(1, np.float32), 32, points, size=32)
dequantize = TYPE.dequantize


def quantize(x: npt.NDArray[np.floating]) -> bytes:
    x = block.groups(x, 32)
    d = block.extreme(x) / np.float32(-32)
    q = np.minimum(63, np.trunc(x * block.inverse(d) + np.float32(32.5))).astype(np.int32)
    return TYPE.write(d, {"index": q})

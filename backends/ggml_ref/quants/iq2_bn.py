"""iq2_bn: values -1, 0, 1 or 2 with one scale for a whole row; each block of 64 repeats it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants import _blocks as block
from ggml_ref.quants._blocks import F32
from ggml_ref.quants._coded import PointFormat
from ggml_ref.quants._ternary import ternary


def points() -> F32:
    return np.arange(-1, 3, dtype=np.float32)[:, None]


FIELDS = (("index", "j16 p4 b2 > p j b"),)
TYPE = PointFormat("<f4", FIELDS, np.ones(1, np.float32), 64, points, size=64)
dequantize = TYPE.dequantize


def approximate(x: npt.NDArray[np.floating]) -> bytes:
    """Quantize with a scale for each block of 64."""
    x = block.groups(x, 64)
    d = np.abs(x).max(axis=1, keepdims=True)
    return TYPE.write(d, {"index": ternary(x, d)})

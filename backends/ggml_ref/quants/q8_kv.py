"""q8_kv: int8 values with one scale for a whole row, x = d·q; each block of 32 repeats it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants import _blocks as block
from ggml_ref.quants._blocks import F32
from ggml_ref.quants._coded import PointFormat


def points() -> F32:
    return np.arange(256).astype(np.int8).astype(np.float32)[:, None]


TYPE = PointFormat("<f4", (("index", "i32 x8"),), np.ones(1, np.float32), 32, points, size=32)
dequantize = TYPE.dequantize


def approximate(x: npt.NDArray[np.floating]) -> bytes:
    """Quantize with a scale for each block of 32."""
    x = block.groups(x, 32)
    d = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
    q = np.rint(x * block.inverse(d)).astype(np.int32)
    return TYPE.write(d, {"index": q & 255})

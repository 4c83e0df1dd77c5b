"""iq4_nl: 32 four-bit indices of uneven levels with one half scale, x = d·level[q]."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants import _blocks as block
from ggml_ref.quants._blocks import F32, TINY, U8
from ggml_ref.quants._nonlinear import LEVELS, fit, nearest_level

BLOCK = np.dtype([("d", "<f2"), ("q", "u1", 16)])


def dequantize(blocks: U8) -> F32:
    b = block.fields(blocks, BLOCK)
    return block.float32(b["d"])[:, None] * LEVELS[block.low_high(b["q"])]


def quantize(x: npt.NDArray[np.floating]) -> bytes:
    """Quantize with the indices of the initial scale, then fit the stored scale to the indices."""
    x = block.groups(x, 32)
    top = block.extreme(x)
    zero = np.abs(top) < TINY
    q = nearest_level(block.inverse(top / LEVELS[0]) * x)
    out = np.empty(len(x), BLOCK)
    out["d"] = block.to_half(fit(x, -1))[:, 0]
    out["q"] = block.pack_low_high(np.where(zero, 0, q))
    return out.tobytes()

"""mxfp4: 32 four-bit floats with a power of two as scale (ggml-quants.c:quantize_row_mxfp4_ref)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants import _blocks as block
from ggml_ref.quants._blocks import F32, U8
from ggml_ref.quants._fp4 import LEVELS, nearest_level

BLOCK = np.dtype([("e", "u1"), ("q", "u1", 16)])


def scale(e: U8) -> F32:
    """Return half of 2^(e - 127), as the levels are doubled."""
    return np.ldexp(np.float32(1), e.astype(np.int32) - 128)


def dequantize(blocks: U8) -> F32:
    b = block.fields(blocks, BLOCK)
    return scale(b["e"])[:, None] * LEVELS[block.low_high(b["q"])]


def quantize(x: npt.NDArray[np.floating]) -> bytes:
    x = block.groups(x, 32)
    top = np.abs(x).max(axis=1)
    exponent = np.floor(np.log2(np.where(top > 0, top, 1))) - 2 + 127
    out = np.empty(len(x), BLOCK)
    out["e"] = np.where(top > 0, exponent, 0).astype(np.int32).astype(np.uint8)
    out["q"] = block.pack_low_high(nearest_level(x, scale(out["e"])[:, None]))
    return out.tobytes()

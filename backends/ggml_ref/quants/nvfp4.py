"""nvfp4: 64 four-bit floats in 4 groups with eight-bit float scales (unsigned e4m3)."""

from __future__ import annotations

import numpy as np

from ggml_ref.quants import _blocks as block
from ggml_ref.quants._blocks import F32, U8
from ggml_ref.quants._fp4 import LEVELS

BLOCK = np.dtype([("d", "u1", 4), ("q", "u1", (4, 8))])


def scale(d: U8) -> F32:
    """Half of the e4m3 value (ggml-impl.h:ggml_ue4m3_to_fp32): the levels are doubled."""
    exponent, mantissa = (d >> 3 & 15).astype(np.int32), block.float32(d & 7)
    small = np.ldexp(mantissa, -9)
    normal = np.ldexp(1 + mantissa / np.float32(8), exponent - 7)
    value = np.where(exponent == 0, small, normal) / np.float32(2)
    return np.where(d == 0x7F, np.float32(0), value)


def dequantize(blocks: U8) -> F32:
    b = block.fields(blocks, BLOCK)
    return (scale(b["d"])[:, :, None] * LEVELS[block.low_high(b["q"])]).reshape(-1, 64)

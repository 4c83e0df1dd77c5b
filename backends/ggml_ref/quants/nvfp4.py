"""nvfp4: 64 four-bit floats in 4 groups with eight-bit float scales (unsigned e4m3)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants import _blocks as block
from ggml_ref.quants._blocks import F32, U8
from ggml_ref.quants._fp4 import LEVELS, nearest_level

BLOCK = np.dtype([("d", "u1", 4), ("q", "u1", (4, 8))])


def scale(d: U8) -> F32:
    """Return half of the e4m3 value (ggml-impl.h:ggml_ue4m3_to_fp32): the levels are doubled."""
    exponent, mantissa = (d >> 3 & 15).astype(np.int32), block.float32(d & 7)
    small = np.ldexp(mantissa, -9)
    normal = np.ldexp(1 + mantissa / np.float32(8), exponent - 7)
    value = np.where(exponent == 0, small, normal) / np.float32(2)
    return np.where(d == 0x7F, np.float32(0), value)


def dequantize(blocks: U8) -> F32:
    b = block.fields(blocks, BLOCK)
    return (scale(b["d"])[:, :, None] * LEVELS[block.low_high(b["q"])]).reshape(-1, 64)


def nearest_scale(x: F32) -> U8:
    """Round x >= 0 to e4m3, halves upwards, at most 0x7e (ggml-impl.h:ggml_fp32_to_ue4m3)."""
    exponent = np.frexp(np.minimum(x, 448))[1] - 1
    normal = (exponent + 6) * 8 + np.floor(np.ldexp(x, 3 - exponent) + np.float32(0.5))
    small = np.minimum(np.floor(x * 512 + np.float32(0.5)), 7)
    code = np.where(exponent + 7 <= 0, small, np.where(normal >= 0x78, 0x7E, normal))
    return np.where(x > 0, code, 0).astype(np.uint8)


def quantize(x: npt.NDArray[np.floating]) -> bytes:
    x = block.groups(x, 16).reshape(-1, 4, 16)
    out = np.empty(len(x), BLOCK)
    out["d"] = nearest_scale(np.abs(x).max(axis=2) / np.float32(6))
    out["q"] = block.pack_low_high(nearest_level(x, scale(out["d"])[:, :, None]))
    return out.tobytes()

"""q6_K: 256 six-bit values around 32 in 16 groups with int8 scales, x = d·scale·(q - 32)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants import _blocks as block
from ggml_ref.quants._blocks import F32, TINY, U8
from ggml_ref.quants._search import symmetric

# Each half of 128 values: low nibbles of 0..63 and 64..127, and two upper bits of each quarter.
BLOCK = np.dtype(
    [("low", "u1", (2, 64)), ("high", "u1", (2, 1, 32)), ("scales", "i1", 16), ("d", "<f2")]
)
SHIFTS = np.array([0, 2, 4, 6], np.uint8)[:, None]


def dequantize(blocks: U8) -> F32:
    b = block.fields(blocks, BLOCK)
    high = (b["high"] >> SHIFTS & 3).reshape(-1, 16, 16)
    q = block.low_high(b["low"]).reshape(-1, 16, 16) | high << 4
    scale = block.float32(b["d"])[:, None] * block.float32(b["scales"])
    return (scale[:, :, None] * (block.float32(q) - 32)).reshape(-1, 256)


def quantize(x: npt.NDArray[np.floating]) -> bytes:
    x = block.groups(x, 256).reshape(-1, 16, 16)
    scale, q = symmetric(x, 32)
    top = block.extreme(scale[..., 0])
    zero = np.abs(top) < TINY
    factor = np.float32(-128) / np.where(zero, np.float32(1), top)
    out = np.zeros(len(x), BLOCK)
    out["d"] = block.to_half(np.where(zero, np.float32(0), np.float32(1) / factor))[:, 0]
    out["scales"] = np.where(zero, 0, np.minimum(127, np.rint(factor * scale[..., 0])))
    scale = (block.float32(out["d"])[:, None] * out["scales"])[..., None]
    again = np.clip(np.rint(x / np.where(scale == 0, np.float32(1), scale)), -32, 31) + 32
    q = np.where(scale == 0, q, again).astype(np.uint8)
    q = np.where(zero[..., None], 0, q).reshape(-1, 2, 4, 32)
    out["low"] = block.pack_low_high((q & 15).reshape(-1, 2, 128))
    out["high"] = np.bitwise_or.reduce((q >> 4) << SHIFTS, axis=2, keepdims=True)
    return out.tobytes()

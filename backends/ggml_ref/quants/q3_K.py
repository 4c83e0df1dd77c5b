"""q3_K: 256 three-bit values around 4 in 16 groups, x = d·(scale - 32)·(q - 4), six-bit scales."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants import _blocks as block
from ggml_ref.quants._blocks import F32, TINY, U8
from ggml_ref.quants._search import refine

# Bit g of high[j] is the third bit of value j of eighth g of the block.
BLOCK = np.dtype(
    [("high", "u1", (1, 32)), ("q", "u1", (2, 1, 32)), ("scales", "u1", 12), ("d", "<f2")]
)
SHIFTS = np.array([0, 2, 4, 6], np.uint8)[:, None]
EIGHTH = np.arange(8, dtype=np.uint8)[:, None]


def unpack(packed: U8) -> U8:
    """Unpack [n, 12] bytes to [n, 16] scales: low nibbles in 8 bytes, upper bits in 4."""
    high = (packed[:, None, 8:] >> SHIFTS & np.uint8(3)).reshape(-1, 16)
    return block.low_high(packed[:, :8]) | high << np.uint8(4)


def pack(scales: U8) -> U8:
    """Pack scales, the inverse of unpack."""
    high = np.bitwise_or.reduce((scales >> 4).reshape(-1, 4, 4) << SHIFTS, axis=1)
    return np.concatenate([block.pack_low_high(scales & 15), high], axis=1)


def dequantize(blocks: U8) -> F32:
    b = block.fields(blocks, BLOCK)
    low = (b["q"] >> SHIFTS & 3).reshape(-1, 8, 32)
    q = (low | (b["high"] >> EIGHTH & 1) << 2).reshape(-1, 16, 16)
    scale = block.float32(b["d"])[:, None] * (block.float32(unpack(b["scales"])) - 32)
    return (scale[:, :, None] * (block.float32(q) - 4)).reshape(-1, 256)


def quantize(x: npt.NDArray[np.floating]) -> bytes:
    x = block.groups(x, 256).reshape(-1, 16, 16)
    scale, q = refine(x, 4)
    top = block.extreme(scale[..., 0])
    factor = np.where(top == 0, np.float32(0), np.float32(-32) / np.where(top == 0, 1, top))
    scales = np.clip(np.rint(factor * scale[..., 0]), -32, 31) + 32
    scales = np.where(top == 0, 0, scales).astype(np.uint8)
    out = np.empty(len(x), BLOCK)
    out["d"] = block.to_half(block.inverse(factor))[:, 0]
    out["scales"] = pack(scales)
    d = (block.float32(out["d"])[:, None] * (block.float32(scales) - 32))[..., None]
    again = np.clip(np.rint(x / np.where(d == 0, TINY, d)), -4, 3) + 4
    q = np.where(d == 0, q, again).astype(np.uint8).reshape(-1, 8, 32)
    out["high"] = np.bitwise_or.reduce((q >> 2) << EIGHTH, axis=1, keepdims=True)
    low = (q & 3).reshape(-1, 2, 4, 32) << SHIFTS
    out["q"] = np.bitwise_or.reduce(low, axis=2, keepdims=True)
    return out.tobytes()

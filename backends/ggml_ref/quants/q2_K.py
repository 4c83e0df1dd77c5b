"""q2_K: 256 two-bit values in 16 groups, x = d·scale·q - d_min·min; scales, minima of four bits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants import _blocks as block
from ggml_ref.quants._blocks import F32, U8
from ggml_ref.quants._search import with_minimum

BLOCK = np.dtype([("scales", "u1", 16), ("q", "u1", (2, 1, 32)), ("d", "<f2"), ("d_min", "<f2")])
SHIFTS = np.array([0, 2, 4, 6], np.uint8)[:, None]


def dequantize(blocks: U8) -> F32:
    b = block.fields(blocks, BLOCK)
    q = (b["q"] >> SHIFTS & 3).reshape(-1, 16, 16)
    scale = block.float32(b["d"])[:, None] * block.float32(b["scales"] & 15)
    minimum = block.float32(b["d_min"])[:, None] * block.float32(b["scales"] >> 4)
    return (scale[:, :, None] * block.float32(q) - minimum[:, :, None]).reshape(-1, 256)


def quantize(x: npt.NDArray[np.floating]) -> bytes:
    x = block.groups(x, 256).reshape(-1, 16, 16)
    scale, minimum, q = with_minimum(x, np.abs(x), 3, -0.5, 0.1, 15, absolute=True)
    out = np.empty(len(x), BLOCK)
    out["d"], scales = _four_bits(scale[..., 0])
    out["d_min"], minima = _four_bits(minimum[..., 0])
    out["scales"] = scales | minima << 4
    scale = (block.float32(out["d"])[:, None] * scales)[..., None]
    minimum = (block.float32(out["d_min"])[:, None] * minima)[..., None]
    again = np.clip(np.rint((x + minimum) / np.where(scale == 0, 1, scale)), 0, 3)
    q = np.where(scale == 0, q, again).astype(np.uint8).reshape(-1, 2, 4, 32)
    out["q"] = np.bitwise_or.reduce(q << SHIFTS, axis=2, keepdims=True)
    return out.tobytes()


def _four_bits(x: F32) -> tuple[npt.NDArray[np.float16], U8]:
    """Round [n, 16] non-negative values to a half [n] times 0 .. 15."""
    top = np.maximum(x.max(axis=1, keepdims=True), 0)
    factor = np.where(top > 0, np.float32(15) / np.where(top > 0, top, 1), np.float32(0))
    return block.to_half(top[:, 0] / np.float32(15)), np.rint(factor * x).astype(np.uint8)

"""Values -1, 0, 1 or 2 of two bits each, with one half scale before them, in blocks of n values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants import _blocks as block
from ggml_ref.quants._blocks import F32, U8

SHIFTS = np.array([0, 2, 4, 6], np.uint8)


def block_dtype(n: int) -> np.dtype[np.void]:
    """Return the struct of a block of n values."""
    return np.dtype([("d", "<f2"), ("q", "u1", (n // 4, 1))])


def dequantize_blocks(blocks: U8, n: int) -> F32:
    b = block.fields(blocks, block_dtype(n))
    q = (b["q"] >> SHIFTS & 3).reshape(-1, n)
    return block.float32(b["d"])[:, None] * (block.float32(q) - 1)


def quantize_groups(x: npt.NDArray[np.floating], n: int) -> bytes:
    x = block.groups(x, n)
    d = np.abs(x).max(axis=1, keepdims=True)
    q = np.clip(block.round_away(x * block.inverse(d)) + 1, 0, 3).astype(np.uint8)
    out = np.empty(len(x), block_dtype(n))
    out["d"] = block.to_half(d)[:, 0]
    out["q"] = np.bitwise_or.reduce(q.reshape(-1, n // 4, 4) << SHIFTS, axis=2, keepdims=True)
    return out.tobytes()

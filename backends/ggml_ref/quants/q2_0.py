"""q2_0: 64 values -1, 0, 1 or 2 times one half scale."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants import _blocks as block
from ggml_ref.quants._blocks import F32, U8

BLOCK = np.dtype([("d", "<f2"), ("q", "u1", (16, 1))])
SHIFTS = np.array([0, 2, 4, 6], np.uint8)


def dequantize(blocks: U8) -> F32:
    b = block.fields(blocks, BLOCK)
    q = (b["q"] >> SHIFTS & 3).reshape(-1, 64)
    return block.float32(b["d"])[:, None] * (block.float32(q) - 1)


def quantize(x: npt.NDArray[np.floating]) -> bytes:
    x = block.groups(x, 64)
    d = np.abs(x).max(axis=1, keepdims=True)
    q = np.clip(block.round_away(x * block.inverse(d)) + 1, 0, 3).astype(np.uint8)
    out = np.empty(len(x), BLOCK)
    out["d"] = block.to_half(d)[:, 0]
    out["q"] = np.bitwise_or.reduce(q.reshape(-1, 16, 4) << SHIFTS, axis=2, keepdims=True)
    return out.tobytes()

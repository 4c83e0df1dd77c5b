"""tq2_0: 256 values -1, 0 or 1 (two bits each) times one half scale."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants import _blocks as block
from ggml_ref.quants._blocks import F32, U8

BLOCK = np.dtype([("q", "u1", (2, 1, 32)), ("d", "<f2")])
SHIFTS = np.array([0, 2, 4, 6], np.uint8)[:, None]


def dequantize(blocks: U8) -> F32:
    b = block.fields(blocks, BLOCK)
    q = (b["q"] >> SHIFTS & 3).reshape(-1, 256)
    return block.float32(b["d"])[:, None] * (block.float32(q) - 1)


def quantize(x: npt.NDArray[np.floating]) -> bytes:
    x = block.groups(x, 256)
    d = np.abs(x).max(axis=1, keepdims=True)
    q = (block.round_away(x * block.inverse(d)) + 1).astype(np.uint8).reshape(-1, 2, 4, 32)
    out = np.empty(len(x), BLOCK)
    out["d"] = block.to_half(d)[:, 0]
    out["q"] = np.bitwise_or.reduce(q << SHIFTS, axis=2, keepdims=True)
    return out.tobytes()

"""ptq1_0: 128 values -1, 0 or 1, five to a byte, times one half scale (PrismML's llama.cpp)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants import _blocks as block
from ggml_ref.quants._blocks import F32, U8
from ggml_ref.quants._ternary import digits, fractions

BLOCK = np.dtype([("q", "u1", 24), ("high", "u1", 2), ("d", "<f2")])


def dequantize(blocks: U8) -> F32:
    b = block.fields(blocks, BLOCK)
    parts = [digits(b["q"][:, :16], 5), digits(b["q"][:, 16:], 5), digits(b["high"], 4)]
    return block.float32(b["d"])[:, None] * np.concatenate(parts, axis=1)


def quantize(x: npt.NDArray[np.floating]) -> bytes:
    x = block.groups(x, 128)
    d = np.abs(x).max(axis=1, keepdims=True)
    q = (block.round_away(x * block.inverse(d)) + 1).astype(np.uint8)
    out = np.empty(len(x), BLOCK)
    out["d"] = block.to_half(d)[:, 0]
    out["q"] = np.concatenate([fractions(q[:, :80], 5), fractions(q[:, 80:120], 5)], axis=1)
    out["high"] = fractions(q[:, 120:], 4)
    return out.tobytes()

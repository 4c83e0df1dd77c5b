"""tq1_0: 256 values -1, 0 or 1, five to a byte, times one half scale.

A byte is a fraction of 256 in base 3: multiplied by 3^n modulo 256, its leading digit is value n.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants import _blocks as block
from ggml_ref.quants._blocks import F32, U8

BLOCK = np.dtype([("q", "u1", 48), ("high", "u1", 4), ("d", "<f2")])
POWERS = np.array([1, 3, 9, 27, 81], np.uint8)[:, None]


def digits(q: U8, n: int) -> F32:
    """Return digits -1, 0, 1 of bytes [..., m], [..., n * m]: first digits of all, then second."""
    leading = (q[:, None] * POWERS[:n]).astype(np.uint16) * 3 >> 8
    return block.float32(leading.reshape(len(q), -1)) - 1


def dequantize(blocks: U8) -> F32:
    b = block.fields(blocks, BLOCK)
    parts = [digits(b["q"][:, :32], 5), digits(b["q"][:, 32:], 5), digits(b["high"], 4)]
    return block.float32(b["d"])[:, None] * np.concatenate(parts, axis=1)


def fractions(q: U8, n: int) -> U8:
    """Return bytes [..., m] of digits 0, 1, 2 [..., n * m], rounded upwards: inverse of digits."""
    weights = (3 ** np.arange(4, 4 - n, -1))[:, None]
    number: npt.NDArray[np.integer] = (q.reshape(len(q), n, -1) * weights).sum(axis=1)
    return ((number * 256 + 242) // 243).astype(np.uint8)


def quantize(x: npt.NDArray[np.floating]) -> bytes:
    x = block.groups(x, 256)
    d = np.abs(x).max(axis=1, keepdims=True)
    q = (block.round_away(x * block.inverse(d)) + 1).astype(np.uint8)
    out = np.empty(len(x), BLOCK)
    out["d"] = block.to_half(d)[:, 0]
    out["q"] = np.concatenate([fractions(q[:, :160], 5), fractions(q[:, 160:240], 5)], axis=1)
    out["high"] = fractions(q[:, 240:], 4)
    return out.tobytes()

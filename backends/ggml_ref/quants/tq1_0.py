"""tq1_0: 256 values -1, 0 or 1, five to a byte, times one half scale.

A byte is a fraction of 256 in base 3: multiplied by 3^n modulo 256, its leading digit is value n.
"""

from __future__ import annotations

import numpy as np

from ggml_ref.quants import _blocks as block
from ggml_ref.quants._blocks import F32, U8

BLOCK = np.dtype([("q", "u1", 48), ("high", "u1", 4), ("d", "<f2")])
POWERS = np.array([1, 3, 9, 27, 81], np.uint8)[:, None]


def digits(q: U8, n: int) -> F32:
    """[..., m] bytes -> [..., n * m] values -1, 0, 1: first digits of all bytes, then second."""
    leading = (q[:, None] * POWERS[:n]).astype(np.uint16) * 3 >> 8
    return block.float32(leading.reshape(len(q), -1)) - 1


def dequantize(blocks: U8) -> F32:
    b = block.fields(blocks, BLOCK)
    parts = [digits(b["q"][:, :32], 5), digits(b["q"][:, 32:], 5), digits(b["high"], 4)]
    return block.float32(b["d"])[:, None] * np.concatenate(parts, axis=1)

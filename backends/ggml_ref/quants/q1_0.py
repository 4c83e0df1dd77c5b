"""q1_0: 128 signs with one half scale, x = ±d."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants import _blocks as block
from ggml_ref.quants._blocks import F32, U8

BLOCK = np.dtype([("d", "<f2"), ("q", "u1", 16)])


def dequantize(blocks: U8) -> F32:
    b = block.fields(blocks, BLOCK)
    positive = np.unpackbits(b["q"], axis=1, bitorder="little")
    d = block.float32(b["d"])[:, None]
    return np.where(positive, d, -d)


def quantize(x: npt.NDArray[np.floating]) -> bytes:
    x = block.groups(x, 128)
    out = np.empty(len(x), BLOCK)
    out["d"] = block.to_half(block.ordered_sum(np.abs(x)) / np.float32(128))[:, 0]
    out["q"] = np.packbits(x >= 0, axis=1, bitorder="little")
    return out.tobytes()

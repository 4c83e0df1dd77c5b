"""q4_0: 32 four-bit values around 8 with one half scale, x = d·(q - 8)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants import _blocks as block
from ggml_ref.quants._blocks import F32, U8

BLOCK = np.dtype([("d", "<f2"), ("q", "u1", 16)])


def dequantize(blocks: U8) -> F32:
    b = block.fields(blocks, BLOCK)
    return block.float32(b["d"])[:, None] * (block.float32(block.low_high(b["q"])) - 8)


def quantize(x: npt.NDArray[np.floating]) -> bytes:
    x = block.groups(x, 32)
    d = block.extreme(x) / np.float32(-8)
    q = np.minimum(15, np.trunc(x * block.inverse(d) + np.float32(8.5)))
    out = np.empty(len(x), BLOCK)
    out["d"] = block.to_half(d)[:, 0]
    out["q"] = block.pack_low_high(q)
    return out.tobytes()

"""q5_1: 32 five-bit values with half scale and minimum, x = d·q + m; fifth bits apart."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants import _blocks as block
from ggml_ref.quants._blocks import F32, U8

BLOCK = np.dtype([("d", "<f2"), ("m", "<f2"), ("high", "u1", 4), ("q", "u1", 16)])


def dequantize(blocks: U8) -> F32:
    b = block.fields(blocks, BLOCK)
    q = block.low_high(b["q"]) | np.unpackbits(b["high"], axis=1, bitorder="little") << 4
    return block.float32(b["d"])[:, None] * q + block.float32(b["m"])[:, None]


def quantize(x: npt.NDArray[np.floating]) -> bytes:
    x = block.groups(x, 32)
    low = x.min(axis=1, keepdims=True)
    d = (x.max(axis=1, keepdims=True) - low) / np.float32(31)
    q = np.trunc((x - low) * block.inverse(d) + np.float32(0.5)).astype(np.uint8)
    out = np.empty(len(x), BLOCK)
    out["d"] = block.to_half(d)[:, 0]
    out["m"] = block.to_half(low)[:, 0]
    out["high"] = np.packbits(q >> 4, axis=1, bitorder="little")
    out["q"] = block.pack_low_high(q & 15)
    return out.tobytes()

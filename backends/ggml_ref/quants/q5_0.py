"""q5_0: 32 five-bit values around 16 with one half scale, x = d·(q - 16); fifth bits apart."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants import _blocks as block
from ggml_ref.quants._blocks import F32, U8

BLOCK = np.dtype([("d", "<f2"), ("high", "u1", 4), ("q", "u1", 16)])


def dequantize(blocks: U8) -> F32:
    b = block.fields(blocks, BLOCK)
    q = block.low_high(b["q"]) | np.unpackbits(b["high"], axis=1, bitorder="little") << 4
    return block.float32(b["d"])[:, None] * (block.float32(q) - 16)


def quantize(x: npt.NDArray[np.floating]) -> bytes:
    x = block.groups(x, 32)
    d = block.extreme(x) / np.float32(-16)
    q = np.minimum(31, np.trunc(x * block.inverse(d) + np.float32(16.5))).astype(np.uint8)
    out = np.empty(len(x), BLOCK)
    out["d"] = block.to_half(d)[:, 0]
    out["high"] = np.packbits(q >> 4, axis=1, bitorder="little")
    out["q"] = block.pack_low_high(q & 15)
    return out.tobytes()

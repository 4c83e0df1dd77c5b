"""iq4_xs: 8 groups of 32 uneven levels with six-bit scales, x = d·(scale - 32)·level[q]."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants import _blocks as block
from ggml_ref.quants._blocks import F32, U8
from ggml_ref.quants._nonlinear import LEVELS, encode, fit

# The 8 scales: two upper bits in each pair of bits of `high`, low nibbles in pairs in `low`.
BLOCK = np.dtype([("d", "<f2"), ("high", "<u2", 1), ("low", "u1", 4), ("q", "u1", (8, 16))])
PAIR = 2 * np.arange(8, dtype=np.uint16)


def dequantize(blocks: U8) -> F32:
    b = block.fields(blocks, BLOCK)
    low = np.stack([b["low"] & 15, b["low"] >> 4], axis=-1).reshape(-1, 8)
    scale = low | (b["high"].reshape(-1, 1) >> PAIR & 3) << 4
    d = block.float32(b["d"])[:, None] * (block.float32(scale) - 32)
    return (d[:, :, None] * LEVELS[block.low_high(b["q"])]).reshape(-1, 256)


def quantize(x: npt.NDArray[np.floating]) -> bytes:
    x = block.groups(x, 256).reshape(-1, 8, 32)
    scale = fit(x, 7)[..., 0]
    d = -block.extreme(scale) / np.float32(32)
    steps = np.clip(np.rint(block.inverse(d) * scale), -32, 31)
    out = np.empty(len(x), BLOCK)
    out["d"] = block.to_half(d)[:, 0]
    out["q"] = block.pack_low_high(encode(x, (d * block.float32(steps))[..., None]))
    six = (steps + 32).astype(np.uint16)
    out["low"] = (six[:, ::2] & 15) | (six[:, 1::2] & 15) << 4
    out["high"] = np.bitwise_or.reduce((six >> 4) << PAIR, axis=1).reshape(out["high"].shape)
    return out.tobytes()

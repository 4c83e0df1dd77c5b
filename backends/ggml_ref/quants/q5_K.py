"""q5_K: 256 five-bit values in 8 groups, x = d·scale·q - d_min·min; scales, minima of six bits.

Bit g of high[j] is the fifth of value j of group g.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants import _scales_k4 as k4
from ggml_ref.quants._blocks import F32, U8, fields, low_high, pack_low_high

BLOCK = np.dtype(
    [
        ("d", "<f2"),
        ("d_min", "<f2"),
        ("scales", "u1", 12),
        ("high", "u1", (1, 32)),
        ("q", "u1", (4, 32)),
    ]
)
GROUP = np.arange(8, dtype=np.uint8)[:, None]


def dequantize(blocks: U8) -> F32:
    b = fields(blocks, BLOCK)
    high: U8 = b["high"] >> GROUP & np.uint8(1)
    q = low_high(b["q"]).reshape(-1, 8, 32) | high << np.uint8(4)
    return k4.values(b["d"], b["d_min"], b["scales"], q)


def quantize(x: npt.NDArray[np.floating]) -> bytes:
    d, d_min, scales, q = k4.encode(x, 31, -0.5, 0.1, 15)
    out = np.empty(len(d), BLOCK)
    out["d"], out["d_min"], out["scales"] = d, d_min, scales
    out["high"] = np.bitwise_or.reduce((q >> 4) << GROUP, axis=1, keepdims=True)
    out["q"] = pack_low_high((q & 15).reshape(-1, 4, 64))
    return out.tobytes()

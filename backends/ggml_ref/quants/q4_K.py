"""q4_K: 256 four-bit values in 8 groups, x = d·scale·q - d_min·min; scales, minima of six bits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants import _scales_k4 as k4
from ggml_ref.quants._blocks import F32, U8, fields, low_high, pack_low_high

BLOCK = np.dtype([("d", "<f2"), ("d_min", "<f2"), ("scales", "u1", 12), ("q", "u1", (4, 32))])


def dequantize(blocks: U8) -> F32:
    b = fields(blocks, BLOCK)
    return k4.values(b["d"], b["d_min"], b["scales"], low_high(b["q"]).reshape(-1, 8, 32))


def quantize(x: npt.NDArray[np.floating]) -> bytes:
    d, d_min, scales, q = k4.encode(x, 15, -1.0, 0.1, 20)
    out = np.empty(len(d), BLOCK)
    out["d"], out["d_min"], out["scales"] = d, d_min, scales
    out["q"] = pack_low_high(q.reshape(-1, 4, 64))
    return out.tobytes()

"""q8_1: 32 int8 with one half scale and s = d·sum(q). Activations only, never in a file."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants._blocks import F32, U8, fields, float32, groups, inverse, round_away, to_half

BLOCK = np.dtype([("d", "<f2"), ("s", "<f2"), ("q", "i1", 32)])


def dequantize(blocks: U8) -> F32:
    b = fields(blocks, BLOCK)
    return float32(b["d"])[:, None] * float32(b["q"])


def quantize(x: npt.NDArray[np.floating]) -> bytes:
    x = groups(x, 32)
    d = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
    q = round_away(x * inverse(d))
    out = np.empty(len(x), BLOCK)
    out["d"] = to_half(d)[:, 0]
    out["s"] = to_half(q.sum(axis=1) * d[:, 0])
    out["q"] = q
    return out.tobytes()

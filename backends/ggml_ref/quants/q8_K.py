"""q8_K: 256 int8 with a float scale and the sums of each 16. Activations only, never in a file."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants._blocks import F32, U8, extreme, fields, float32, groups

BLOCK = np.dtype([("d", "<f4"), ("q", "i1", 256), ("sums", "<i2", 16)])


def dequantize(blocks: U8) -> F32:
    b = fields(blocks, BLOCK)
    return float32(b["d"])[:, None] * float32(b["q"])


def quantize(x: npt.NDArray[np.floating]) -> bytes:
    x = groups(x, 256)
    top = extreme(x)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = np.where(top == 0, np.float32(0), np.float32(-127) / top)
        d = np.where(top == 0, np.float32(0), np.float32(1) / scale)
    q = np.minimum(127, np.rint(scale * x))
    out = np.empty(len(x), BLOCK)
    out["d"] = d[:, 0]
    out["q"] = q
    out["sums"] = q.reshape(-1, 16, 16).sum(axis=2)
    return out.tobytes()

"""iq3_s: 8 groups of 32, four-bit scales, x = d·(2·scale + 1)·point; 8 points of 512, signs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants import _blocks as block
from ggml_ref.quants import _grid as codebook
from ggml_ref.quants._blocks import F32, U8

# Index bits: eight bits in `low`, the ninth in a bit of `high`.
BLOCK = np.dtype(
    [
        ("d", "<f2"),
        ("low", "u1", (8, 8)),
        ("high", "u1", (8, 1)),
        ("signs", "u1", (8, 4)),
        ("scales", "u1", 4),
    ]
)
BIT = np.arange(8, dtype=np.uint8)


def dequantize(blocks: U8) -> F32:
    b = block.fields(blocks, BLOCK)
    index = b["low"] | (b["high"] >> BIT & 1).astype(np.uint16) << 8
    scale = block.float32(b["d"])[:, None] * block.float32(1 + 2 * codebook.pairs(b["scales"]))
    x: F32 = scale[..., None, None] * codebook.points("iq3_s")[index]
    return (x.reshape(-1, 8, 4, 8) * codebook.signs(b["signs"])).reshape(-1, 256)


@codebook.limit_memory
def approximate(x: npt.NDArray[np.floating]) -> bytes:
    size, sign = codebook.split_signs(block.groups(x, 256).reshape(-1, 8, 4, 8), even=False)
    out = np.empty(len(size), BLOCK)
    size = size.reshape(-1, 8, 8, 4)
    out["d"], step, index = codebook.encode("iq3_s", size, 16, 1)
    out["low"] = index & 255
    out["high"] = np.bitwise_or.reduce(index >> 8 << BIT, axis=-1, keepdims=True)
    out["signs"] = sign
    out["scales"] = codebook.pack_pairs(step)
    return out.tobytes()

"""iq2_s: 16 groups of 16, four-bit scales; 2 points of 1024, each with 8 signs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants import _blocks as block
from ggml_ref.quants import _grid as codebook
from ggml_ref.quants._blocks import F32, U8

# Index bits: eight bits in `low`, two in a pair of bits of `high`.
BLOCK = np.dtype(
    [
        ("d", "<f2"),
        ("low", "u1", (8, 4)),
        ("signs", "u1", (8, 4)),
        ("high", "u1", (8, 1)),
        ("scales", "u1", 8),
    ]
)
PAIR = 2 * np.arange(4, dtype=np.uint8)


def dequantize(blocks: U8) -> F32:
    b = block.fields(blocks, BLOCK)
    index = b["low"] | (b["high"] >> PAIR & 3).astype(np.uint16) << 8
    scale = codebook.half_steps(b["d"], codebook.pairs(b["scales"]), 0.25)
    x: F32 = codebook.points("iq2_s")[index].reshape(-1, 16, 2, 8) * scale[..., None, None]
    return (x.reshape(-1, 8, 4, 8) * codebook.signs(b["signs"])).reshape(-1, 256)


@codebook.limit_memory
def approximate(x: npt.NDArray[np.floating]) -> bytes:
    size, sign = codebook.split_signs(block.groups(x, 256).reshape(-1, 16, 2, 8), even=False)
    out = np.empty(len(size), BLOCK)
    out["d"], step, index = codebook.encode("iq2_s", size, 16, 8)
    index = index.reshape(-1, 8, 4)
    out["low"] = index & 255
    out["high"] = np.bitwise_or.reduce(index >> 8 << PAIR, axis=-1, keepdims=True)
    out["signs"] = sign.reshape(-1, 8, 4)
    out["scales"] = codebook.pack_pairs(step)
    return out.tobytes()

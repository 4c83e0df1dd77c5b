"""iq2_xs: 16 groups of 16, four-bit scales; 2 points of 512, each with 8 signs in seven bits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants import _blocks as block
from ggml_ref.quants import _grid as codebook
from ggml_ref.quants._blocks import F32, U8

# `q`: nine bits of index below seven of signs.
BLOCK = np.dtype([("d", "<f2"), ("q", "<u2", (16, 2)), ("scales", "u1", 8)])


def dequantize(blocks: U8) -> F32:
    b = block.fields(blocks, BLOCK)
    sign = codebook.signs(codebook.EVEN[b["q"] >> 9])
    scale = codebook.half_steps(b["d"], codebook.pairs(b["scales"]), 0.25)
    x: F32 = scale[..., None, None] * codebook.points("iq2_xs")[b["q"] & 511] * sign
    return x.reshape(-1, 256)


@codebook.limit_memory
def approximate(x: npt.NDArray[np.floating]) -> bytes:
    size, sign = codebook.split_signs(block.groups(x, 256).reshape(-1, 16, 2, 8), even=True)
    out = np.empty(len(size), BLOCK)
    out["d"], step, index = codebook.encode("iq2_xs", size, 16, 8)
    out["q"] = index | (sign & 127).astype(np.uint16) << 9
    out["scales"] = codebook.pack_pairs(step)
    return out.tobytes()

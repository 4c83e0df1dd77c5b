"""iq2_xxs: 8 groups of 32, four-bit scales; 4 points of 256, each with 8 signs in seven bits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants import _blocks as block
from ggml_ref.quants import _grid as codebook
from ggml_ref.quants._blocks import F32, U8

# `signs`: seven bits for each point; the upper four bits are the scale.
GROUP = np.dtype([("index", "u1", 4), ("signs", "<u4")])
BLOCK = np.dtype([("d", "<f2"), ("group", GROUP, 8)])
SEVENS = 7 * np.arange(4, dtype=np.uint32)


def dequantize(blocks: U8) -> F32:
    b = block.fields(blocks, BLOCK)
    group = b["group"]
    sign = codebook.signs(codebook.EVEN[group["signs"][..., None] >> SEVENS & 127])
    scale = codebook.half_steps(b["d"], group["signs"] >> 28, 0.25)
    x: F32 = scale[..., None, None] * codebook.points("iq2_xxs")[group["index"]] * sign
    return x.reshape(-1, 256)


@codebook.limit_memory
def approximate(x: npt.NDArray[np.floating]) -> bytes:
    size, sign = codebook.split_signs(block.groups(x, 256).reshape(-1, 8, 4, 8), even=True)
    out = np.empty(len(size), BLOCK)
    out["d"], step, index = codebook.encode("iq2_xxs", size, 16, 8)
    out["group"]["index"] = index
    sevens = (sign & 127).astype(np.uint32) << SEVENS
    out["group"]["signs"] = np.bitwise_or.reduce(sevens, axis=-1) | step.astype(np.uint32) << 28
    return out.tobytes()

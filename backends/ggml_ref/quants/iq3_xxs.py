"""iq3_xxs: 8 groups of 32, four-bit scales; 8 points of 256, seven bits of signs for each two."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants import _blocks as block
from ggml_ref.quants import _grid as codebook
from ggml_ref.quants._blocks import F32, U8

# `signs`: of a group, seven bits for each two points; the upper four bits are the scale.
BLOCK = np.dtype([("d", "<f2"), ("index", "u1", (8, 8)), ("signs", "<u4", 8)])
SEVENS = 7 * np.arange(4, dtype=np.uint32)


def dequantize(blocks: U8) -> F32:
    b = block.fields(blocks, BLOCK)
    sign = codebook.signs(codebook.EVEN[b["signs"][..., None] >> SEVENS & 127])
    scale = codebook.half_steps(b["d"], b["signs"] >> 28, 0.5)
    x: F32 = scale[..., None, None] * codebook.points("iq3_xxs")[b["index"]]
    return (x.reshape(sign.shape) * sign).reshape(-1, 256)


@codebook.limit_memory
def approximate(x: npt.NDArray[np.floating]) -> bytes:
    size, sign = codebook.split_signs(block.groups(x, 256).reshape(-1, 8, 4, 8), even=True)
    out = np.empty(len(size), BLOCK)
    size = size.reshape(-1, 8, 8, 4)
    out["d"], step, out["index"] = codebook.encode("iq3_xxs", size, 16, 4)
    sevens = (sign & 127).astype(np.uint32) << SEVENS
    out["signs"] = np.bitwise_or.reduce(sevens, axis=-1) | step.astype(np.uint32) << 28
    return out.tobytes()

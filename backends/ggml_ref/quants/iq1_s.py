"""iq1_s: 8 groups of 32 with three-bit scales and a delta; 4 points of 2048.

x = d·(2·scale + 1)·(point + delta), delta = ±1/8.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants import _blocks as block
from ggml_ref.quants import _grid as codebook
from ggml_ref.quants import _nearest as nearest
from ggml_ref.quants._blocks import F32, U8

# Index bits: eight bits in `low`, three in `high`, above them the scale and the delta's sign.
BLOCK = np.dtype([("d", "<f2"), ("low", "u1", (8, 4)), ("high", "<u2", 8)])
THREE = 3 * np.arange(4, dtype=np.uint16)
RATIOS = (1.0, 1.5, 2.0)


def dequantize(blocks: U8) -> F32:
    b = block.fields(blocks, BLOCK)
    high = b["high"][..., None]
    index = b["low"] | (high >> THREE & 7) << 8
    scale = block.float32(b["d"])[:, None, None] * block.float32(2 * (high >> 12 & 7) + 1)
    values: F32 = codebook.points("iq1")[index] + codebook.DELTA[high >> 15][..., None]
    return (scale[..., None] * values).reshape(-1, 256)


@codebook.limit_memory
def approximate(x: npt.NDArray[np.floating]) -> bytes:
    """Quantize with the delta's sign of smaller error at the group's scale."""
    x = block.groups(x, 256).reshape(-1, 8, 4, 8)
    grids = [nearest.shift_codebook(delta) for delta in codebook.DELTA]
    (plus, gain), (minus, other) = (codebook.fit(grid, x, RATIOS) for grid in grids)
    out = np.empty(len(x), BLOCK)
    scale = np.where(other > gain, minus, plus)[..., 0, 0]
    out["d"], step, scale = codebook.round_scales(scale, 8, 8)
    scale = scale[..., None, None]
    both = [grid.nearest(x * block.inverse(scale)) for grid in grids]
    errors = [
        codebook.sum_group((x - scale * grid.points[index]) ** 2)[..., 0]
        for grid, index in zip(grids, both, strict=True)
    ]
    negative = errors[1] < errors[0]
    index = np.where(negative, both[1], both[0])
    out["low"] = index & 255
    high = np.bitwise_or.reduce(index >> 8 << THREE, axis=-1)
    out["high"] = high | step.astype(np.uint16) << 12 | negative[..., 0].astype(np.uint16) << 15
    return out.tobytes()

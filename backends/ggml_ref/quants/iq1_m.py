"""iq1_m: 16 groups of 16 with three-bit scales; 2 points of 2048, each with a delta.

x = d·(2·scale + 1)·(point + delta), delta = ±1/8.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants import _blocks as block
from ggml_ref.quants import _grid as codebook
from ggml_ref.quants import _nearest as nearest
from ggml_ref.quants._blocks import F32, U8

# Index bits: eight bits in `low`, three in a nibble of `high`, above them the delta's sign.
# Four scales in the lower 12 bits of `scales`; the upper nibbles are the bits of the half d.
BLOCK = np.dtype([("low", "u1", 32), ("high", "u1", 16), ("scales", "<u2", (4, 1))])
NIBBLE = 4 * np.arange(4, dtype=np.uint16)
THREE = 3 * np.arange(4, dtype=np.uint16)
RATIOS = (1.0, 1.5, 2.0)


def dequantize(blocks: U8) -> F32:
    b = block.fields(blocks, BLOCK)
    high = codebook.pairs(b["high"])
    index = b["low"] | (high & 7).astype(np.uint16) << 8
    bits = np.bitwise_or.reduce(b["scales"][..., 0] >> 12 << NIBBLE, axis=1)
    d = block.float32(bits.astype("<u2").view("<f2"))
    scale = d[:, None] * block.float32(2 * (b["scales"] >> THREE & 7) + 1).reshape(-1, 16)
    values: F32 = codebook.points("iq1")[index] + codebook.DELTA[high >> 3][..., None]
    return (scale[..., None, None] * values.reshape(-1, 16, 2, 8)).reshape(-1, 256)


@codebook.limit_memory
def approximate(x: npt.NDArray[np.floating]) -> bytes:
    """Quantize with one codebook of 4096: the points with each of the two deltas."""
    points = nearest.Either(*map(nearest.shift_codebook, codebook.DELTA))
    x = block.groups(x, 256).reshape(-1, 16, 2, 8)
    scale, _ = codebook.fit(points, x, RATIOS)
    d, step, scale = codebook.round_scales(scale[..., 0, 0], 8, 8)
    index = points.nearest(x * block.inverse(scale)[..., None, None]).reshape(-1, 32)
    out = np.empty(len(x), BLOCK)
    out["low"] = index & 255
    out["high"] = codebook.pack_pairs((index >> 8).astype(np.uint8))
    scales = np.bitwise_or.reduce(step.reshape(-1, 4, 4).astype(np.uint16) << THREE, axis=-1)
    nibbles = d.astype("<f2").view("<u2")[:, None] >> NIBBLE & 15
    out["scales"] = (scales | nibbles << 12)[..., None]
    return out.tobytes()

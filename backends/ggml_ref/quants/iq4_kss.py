"""iq4_kss: 8 groups of 32 four-bit indices of uneven levels; words of 16 bits also hold the scales.

x = d·((scale & 254) - 127)·level; bit 0 of a scale shifts the levels of its group.

The four indices of a word are u ^ u >> 1, u being the word without bit 0, so they have an even
number of ones. Bit 0 of word i is bit i of the scale.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_py.machine.bits import U8, Values
from ggml_ref.quants._blocks import F32
from ggml_ref.quants._coded import PointFormat
from ggml_ref.quants._ik_levels import EVEN_127, iq4

D = 4  # bytes of the scale
FIELDS = (("code", "g8 x8"), ("index", "s8 j16 h2 b4 > s h j b"))
BYTES = PointFormat("<f4", FIELDS, EVEN_127, 32, iq4, in_code=True)  # with the scales apart
BIT = np.arange(8, dtype=np.uint16)


def dequantize(blocks: U8) -> F32:
    words = np.ascontiguousarray(blocks[:, D:]).view("<u2").reshape(-1, 8, 8)
    scale = np.bitwise_or.reduce((words & 1) << BIT, axis=-1).astype(np.uint8)
    even = words & 0xFFFE
    index = (even ^ even >> 1).view(np.uint8).reshape(len(blocks), -1)
    return BYTES.dequantize(np.concatenate([blocks[:, :D], scale, index], axis=1))


def approximate(x: npt.NDArray[np.floating]) -> bytes:
    """Quantize, and change the lowest bit of a word's first index if needed."""
    raw = np.frombuffer(BYTES.approximate(x), np.uint8).reshape(-1, 140)
    scale, index = raw[:, D : D + 8], raw[:, D + 8 :].copy().view("<u2").reshape(-1, 8, 8)
    odd = index
    for shift in (8, 4, 2, 1):
        odd = odd ^ odd >> shift
    word: Values = index ^ (odd & 1)
    for shift in (8, 4, 2, 1):  # the inverse of u ^ u >> 1
        word = word ^ word >> shift
    word = (word & 0xFFFE) | (scale[:, :, None].astype(np.uint16) >> BIT & 1)
    out = word.astype("<u2").view(np.uint8).reshape(len(raw), -1)
    return np.concatenate([raw[:, :D], out], axis=1).tobytes()

"""iq4_kt: 8 groups of eight 15-bit indices of points of 4 values, x = d·(code - 64)·value.

A word of 32 bits per group: bit 0 is bit 15 of its indices, then 7 bits of the code, then bits 12
to 14 of its eight indices.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from ggml_py.machine.bits import U8
from ggml_ref.quants._blocks import F32
from ggml_ref.quants._coded import PointFormat, encode_pieces
from ggml_ref.quants._ik_levels import around
from ggml_ref.quants._trellis import points

FIELDS = (("word", "g8 x32"), ("index", "i64 x8"), ("index+8", "m32 t2 b4 > t m b"))
TYPE = PointFormat("<f4", FIELDS, around(64), 32, partial(points, 16, 4))
LOWER = replace(TYPE, points=partial(points, 15, 4))  # the indices without bit 15
BIT = 8 + 3 * np.arange(8, dtype=np.int64)


def dequantize(blocks: U8) -> F32:
    d, numbers = TYPE.read(blocks)
    word = numbers.pop("word").astype(np.int64) & 0xFFFFFFFF
    top = (word[..., None] >> BIT & 7) | (word[..., None] & 1) << 3
    index = numbers["index"] | top.reshape(len(blocks), -1) << 12
    return TYPE.values(d, {"code": word >> 1 & 127, "index": index})


def approximate(x: npt.NDArray[np.floating]) -> bytes:
    return encode_pieces(_encode, x)


def _encode(x: F32) -> bytes:
    d, numbers = LOWER.numbers(x)
    index = numbers["index"]
    top = (index >> 12).reshape(len(x), 8, 8)
    word = numbers["code"] << 1 | np.bitwise_or.reduce(top << BIT, axis=-1)
    return TYPE.write(d, {"word": word, "index": index})

"""iq1_kt: 8 groups of four 13-bit indices of points of 8 values, x = d·level[code]·value.

The upper nibble of a code byte has bit 12 of its four indices.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt

from ggml_py.machine.bits import U8, Values
from ggml_ref.quants._blocks import F32
from ggml_ref.quants._coded import PointFormat, encode_pieces
from ggml_ref.quants._ik_levels import UNEVEN
from ggml_ref.quants._trellis import points

FIELDS = (("both", "g8 x8"), ("index", "i32 x8"), ("index+8", "m16 t2 b4 > t m b"))
TYPE = PointFormat("<f4", FIELDS, UNEVEN, 32, partial(points, 13, 8))
BIT = np.arange(4, dtype=np.int32)


def dequantize(blocks: U8) -> F32:
    d, numbers = TYPE.read(blocks)
    both = numbers.pop("both")
    top = (both[..., None] >> 4 + BIT & 1).reshape(len(blocks), -1)
    numbers |= {"code": both & 15, "index": numbers["index"] | top << 12}
    return TYPE.values(d, numbers)


def approximate(x: npt.NDArray[np.floating]) -> bytes:
    return encode_pieces(_encode, x)


def _encode(x: F32) -> bytes:
    d, numbers = TYPE.numbers(x)
    top: Values = (numbers["index"] >> 12 & 1).reshape(len(x), 8, 4)
    both = numbers["code"] | np.bitwise_or.reduce(top << 4 + BIT, axis=-1)
    return TYPE.write(d, numbers | {"both": both})

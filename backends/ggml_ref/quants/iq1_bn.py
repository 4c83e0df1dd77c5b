"""iq1_bn: values -1, 0 or 1 with one half scale for a whole row; each block of 64 repeats it.

Groups of 16: three bytes of five ternary digits; the last values of the four groups are the first
four digits of byte 12. A byte is a fraction of 256 in base 3.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_py.machine.bits import U8
from ggml_ref.quants import _blocks as block
from ggml_ref.quants._blocks import F32
from ggml_ref.quants._ternary import ternary

BLOCK = np.dtype([("d", "<f2"), ("five", "u1", (4, 3, 1)), ("four", "u1", (1,))])
POWERS = np.array([81, 27, 9, 3, 1], np.uint8)


def dequantize(blocks: U8) -> F32:
    b = block.fields(blocks, BLOCK)
    five = digits(b["five"] * POWERS).reshape(-1, 4, 15)
    four = digits(b["four"] * POWERS[:4])
    q = np.concatenate([five, four[:, :, None]], axis=-1).reshape(len(blocks), -1)
    x: F32 = block.float32(b["d"])[:, None] * q
    return x


def digits(x: U8) -> F32:
    """Return the values -1, 0 or 1 of the first digits of bytes."""
    wide = x.astype(np.uint16)
    return block.float32((wide + (wide >> 1)) >> 7) - 1


def approximate(x: npt.NDArray[np.floating]) -> bytes:
    """Quantize with a scale for each block of 64."""
    x = block.groups(x, 64)
    d = np.abs(x).max(axis=1, keepdims=True)
    q = ternary(x, d).reshape(-1, 4, 16)
    out = np.empty(len(x), BLOCK)
    out["d"] = block.to_half(d)[:, 0]
    places = np.array([1, 3, 9, 27, 81])
    five = (q[:, :, :15].reshape(-1, 4, 3, 5) * places).sum(axis=-1)
    out["five"] = fraction(five)[..., None]
    out["four"] = fraction((q[:, :, 15] * places[:4]).sum(axis=-1))[:, None]
    return out.tobytes()


def fraction(number: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the byte of five digits, given as a number below 243."""
    return (256 * number + 242) // 243

"""Uneven levels and factors of ik_llama.cpp's types (ggml-common.h there)."""

from __future__ import annotations

from functools import cache

import numpy as np

from ggml_ref.quants._blocks import F32
from ggml_ref.quants._coded import levels

IQ2 = (-31, -13, 1, 17)
IQ3 = (-63, -40, -23, -10, 1, 13, 28, 47)
IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
IQ5 = (
    -126, -114, -103, -92, -83, -74, -65, -57, -50, -43, -36, -30, -24, -18, -12, -6,
    -1, 5, 11, 17, 23, 29, 36, 43, 51, 59, 68, 77, 87, 97, 109, 121,
)  # fmt: skip
PAIRS = """c1e9 c10d d8c1 d8f6 d80d d82f e9d8 e9e9 e901 e90d e91c f6c1 f601 f60d f62f 01e9
01f6 0101 010d 011c 0dd8 0de9 0df6 0d01 0d0d 1cc1 1ce9 1c01 1c1c 1c2f 2fe9 2f0d"""


@cache
def iq2() -> F32:
    return levels(IQ2, 5)


@cache
def iq3() -> F32:
    return levels(IQ3, 4)


@cache
def iq4() -> F32:
    return levels(IQ4, 4)


@cache
def iq5() -> F32:
    return levels(IQ5, 2)


@cache
def pairs() -> F32:
    """Return 32 points of two values."""
    raw = np.frombuffer(bytes.fromhex("".join(PAIRS.split())), np.int8)
    return raw.reshape(-1, 2).astype(np.float32)


@cache
def iq6() -> F32:
    """Return levels that are a cubic of the index, with one rounding for each a + b * c."""
    q = np.arange(64, dtype=np.float64)
    x = np.full(64, 0.0011972, np.float32)
    for term in (-0.11218, 6.2568, -127.0):
        x = (q * x + np.float32(term)).astype(np.float32)
    return np.concatenate([x, x + np.float32(1)])[:, None]


def around(half: int) -> F32:
    """Return factors -half .. half - 1."""
    return np.arange(-half, half, dtype=np.float32)


EVEN_127 = np.array([(c & 254) - 127 for c in range(256)], np.float32)
"""Odd factors; bit 0 of the code is the shift."""

SIGNED_ODD = np.array([(2 * (c & 15) + 1) * (-1 if c > 15 else 1) for c in range(32)], np.float32)
"""Odd numbers with a sign bit."""

UNEVEN = np.array(IQ4, np.float32)
"""Factors that are levels."""

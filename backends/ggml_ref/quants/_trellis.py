"""Codebooks of ik_llama.cpp's iqN_kt types: numbers of a multiplicative generator."""

from __future__ import annotations

from functools import cache

import numpy as np

from ggml_ref.quants._blocks import F32

FACTOR, FIRST, MASK = 0xCBAC1FED, 4096, 0x3F3F3F3F


@cache
def points(bits: int, length: int) -> F32:
    """Return 2^bits points [.., length]: the sum of four 6-bit bytes of each number, minus 126."""
    x = np.arange(1 << bits, dtype=np.uint32) + np.uint32(FIRST)
    out = np.empty((1 << bits, length), np.float32)
    for i in range(length):
        x = x * np.uint32(FACTOR)
        bytes = (x & np.uint32(MASK)).view(np.uint8).reshape(-1, 4)
        out[:, i] = bytes.sum(axis=1, dtype=np.int32) - 126
    out.flags.writeable = False
    return out

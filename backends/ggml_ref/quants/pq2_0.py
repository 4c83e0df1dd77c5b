"""pq2_0: 128 values -1, 0, 1 or 2 times one half scale (PrismML's llama.cpp)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants._blocks import F32, U8
from ggml_ref.quants._two_bits import dequantize_blocks, quantize_groups


def dequantize(blocks: U8) -> F32:
    return dequantize_blocks(blocks, 128)


def quantize(x: npt.NDArray[np.floating]) -> bytes:
    return quantize_groups(x, 128)

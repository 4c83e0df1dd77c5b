"""bf16: the upper half of a float32, a block of one (ggml-impl.h:ggml_compute_fp32_to_bf16)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants._blocks import F32, U8

NAN = np.uint32(0x7F800000)


def dequantize(blocks: U8) -> F32:
    bits = np.ascontiguousarray(blocks).view("<u2").astype(np.uint32)
    return (bits << 16).view(np.float32)


def quantize(x: npt.NDArray[np.floating]) -> bytes:
    """Round to nearest even; a NaN is still a NaN."""
    bits = x.astype(np.float32).view(np.uint32)
    rounded = bits + (np.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16
    quiet = bits >> 16 | 64
    return np.where(bits & 0x7FFFFFFF > NAN, quiet, rounded).astype("<u2").tobytes()

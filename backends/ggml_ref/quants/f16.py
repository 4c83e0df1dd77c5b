"""f16: IEEE half precision, a block of one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants._blocks import F32, U8


def dequantize(blocks: U8) -> F32:
    return np.ascontiguousarray(blocks).view("<f2").astype(np.float32)


def quantize(x: npt.NDArray[np.floating]) -> bytes:
    """Round to nearest even, straight from the precision given."""
    with np.errstate(over="ignore"):
        return x.astype("<f2").tobytes()

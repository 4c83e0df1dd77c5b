"""Four-bit floats (e2m1), doubled so that they are integers."""

from __future__ import annotations

import numpy as np

from ggml_ref.quants._blocks import F32, U8, nearest

LEVELS = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)


def nearest_level(x: F32, d: F32) -> U8:
    """Index of the level with level·d next to x; the first of equals."""
    return nearest(LEVELS * d[..., None], x).astype(np.uint8)

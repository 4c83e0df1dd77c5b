"""Four-bit floats (e2m1), doubled so that they are integers (ggml-common.h:kvalues_mxfp4)."""

from __future__ import annotations

import numpy as np

LEVELS = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8).tobytes()

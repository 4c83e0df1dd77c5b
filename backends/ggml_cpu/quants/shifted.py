"""The codebook of iq1_s and iq1_m: 2048 points, with 1/8 added or taken off.

The bytes are eight times that plus OFFSET: first the points that are shifted up, then those that
are shifted down.
"""

from __future__ import annotations

import numpy as np

from ggml_py.grids import grid

OFFSET = 9
POINTS = np.concatenate([grid("iq1_s") * 8 + OFFSET + 1, grid("iq1_s") * 8 + OFFSET - 1])

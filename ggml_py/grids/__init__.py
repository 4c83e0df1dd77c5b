"""Codebooks: the grid points that the iq1, iq2 and iq3 types choose from, one module each.

A point is a group of values. POINTS has four hex digits for each: value i of the point is
LEVELS[digits >> (16 // LENGTH * i) & mask]. The order is the file format's: types store indices.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

import numpy as np
import numpy.typing as npt


@cache
def grid(name: str) -> npt.NDArray[np.int8]:
    """Return the points of a codebook, read-only, [number of points, LENGTH]."""
    module = import_module(f"{__name__}.{name}")
    digits = np.frombuffer(bytes.fromhex("".join(module.POINTS.split())), ">u2")
    bits = 16 // module.LENGTH
    places = digits[:, None] >> bits * np.arange(module.LENGTH) & (1 << bits) - 1
    points: npt.NDArray[np.int8] = np.array(module.LEVELS, np.int8)[places]
    points.flags.writeable = False
    return points

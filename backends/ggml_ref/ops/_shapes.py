"""ggml's two ways to fit a smaller tensor to a larger one."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

Type = TypeVar("Type", bound=np.generic)


def tile(x: npt.NDArray[Type], shape: tuple[int, ...]) -> npt.NDArray[Type]:
    """Repeat x as a whole to `shape`, index modulo: arithmetic, masks, REPEAT."""
    return np.tile(x, [n // m if m else 1 for n, m in zip(shape, x.shape, strict=True)])


def stretch(x: npt.NDArray[Type], axis: int, n: int) -> npt.NDArray[Type]:
    """Repeat each slice of x until `axis` has n, index divided: heads in MUL_MAT and attention."""
    return x if x.shape[axis] == n else np.repeat(x, n // x.shape[axis], axis)

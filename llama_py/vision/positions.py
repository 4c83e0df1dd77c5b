"""Two-dimensional RoPE of patches (clip.cpp:clip_graph::build_rope_2d)."""

from __future__ import annotations

import numpy as np

from ggml_py.ops import rope_ext
from ggml_py.tensor import Tensor

PLAIN = 0.0, 1.0, 0.0, 0.0  # YaRN disabled


def turn_2d(
    cur: Tensor, first: Tensor, second: Tensor, base: float, *, mode: int = 0, odd: bool = False
) -> Tensor:
    """Rotate the first half of each head by one axis, the second half by the other. [n_embd_head,
    n_head, n_pos] -> same shape

    odd  the second half uses the frequencies between the first half's
    """
    half = cur.ne[0] // 2
    f32 = np.float32
    scale = float(np.power(f32(base), f32(-2) / f32(cur.ne[0]))) if odd else 1.0
    cur = rope_ext(cur, first, None, half, mode, 0, base, 1.0, *PLAIN)
    return rope_ext(cur, second, None, half, mode, 0, base, scale, *PLAIN, n_offs=half)

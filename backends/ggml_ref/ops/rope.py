"""NumPy reference of the op in ggml_py/ops/rope.py."""

from __future__ import annotations

import math

import numpy as np

from ggml_py.ops.rope import IMROPE, MROPE, NORMAL, VISION
from ggml_py.tensor import Tensor
from ggml_ref.table import table
from ggml_ref.values import Integers, Values


def axes(node: Tensor, n_pairs: int) -> tuple[Integers, Integers]:
    """Return the position, of four, that turns each pair, and the exponent of its frequency."""
    pair = np.arange(n_pairs)
    if not node.param("mode") & MROPE:
        return np.zeros_like(pair), pair
    sections = [node.param(f"section_{c}") for c in "thwe"]
    sector = pair % sum(sections)
    if node.param("mode") == IMROPE:
        third = sector % 3
        inside = sector < 3 * np.array(sections)[third]
        return np.where(inside, third, 3), pair
    start = np.cumsum([0, *sections[:3]])
    axis = np.searchsorted(start, sector, side="right") - 1
    # The vision encoder counts frequencies anew in each section.
    return axis, sector - start[axis] if node.param("mode") == VISION else pair


def yarn(node: Tensor, angle: Values) -> tuple[Values, float]:
    """Return angles [..., n_pairs] for long contexts, and the magnitude (arXiv 2309.00071)."""
    scale, ext, magnitude = (node.param(p) for p in ("freq_scale", "ext_factor", "attn_factor"))
    if ext == 0:
        return scale * angle, magnitude
    n_dims = node.param("n_dims")

    def dim(n_rotations: float) -> float:
        halves = np.float64(2 * math.log(node.param("freq_base")))
        with np.errstate(divide="ignore", invalid="ignore"):  # no power of 1 is another number
            turns = node.param("n_ctx_orig") / (np.float64(n_rotations) * 2 * math.pi)
            return float(n_dims * np.log(turns) / halves)

    low, high = 0.0, -math.inf  # with no original context no pair is beyond it
    if node.param("n_ctx_orig") > 0:
        low = max(0, np.floor(dim(node.param("beta_fast"))))
        high = min(n_dims - 1, np.ceil(dim(node.param("beta_slow"))))
    ramp = np.clip((np.arange(angle.shape[-1]) - low) / max(0.001, high - low), 0, 1)
    mix = (1 - ramp) * ext
    return scale * angle * (1 - mix) + angle * mix, magnitude * (1 + 0.1 * math.log(1 / scale))


@table.op("ROPE")
@table.op("ROPE_BACK")
def rope(node: Tensor, x: Values, pos: Integers, freq_factors: Values | None = None) -> Values:
    n_dims, mode, first = (node.param(p) for p in ("n_dims", "mode", "n_offs"))
    n_pairs = n_dims if mode == VISION else n_dims // 2
    axis, exponent = axes(node, n_pairs)
    position = pos.reshape(4 if mode & MROPE else 1, x.shape[1])[axis].T  # [T, n_pairs]
    angle = position * node.param("freq_base") ** (-2.0 * exponent / n_dims)
    if freq_factors is not None:
        angle = angle / freq_factors[0, 0, 0, :n_pairs]
    angle, magnitude = yarn(node, angle)
    if node.op == "ROPE_BACK":
        angle = -angle
    cos, sin = magnitude * np.cos(angle)[:, None], magnitude * np.sin(angle)[:, None]
    i = np.arange(n_pairs)
    i, j = (2 * i, 2 * i + 1) if mode == NORMAL else (i, i + n_pairs)
    i, j = i + first, j + first
    out = x.copy()
    out[..., i] = x[..., i] * cos - x[..., j] * sin
    out[..., j] = x[..., i] * sin + x[..., j] * cos
    return out

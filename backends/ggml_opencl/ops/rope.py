"""OpenCL launchers of the ops in ggml_py/ops/rope.py."""

from __future__ import annotations

import math

import numpy as np

from ggml_opencl.conditions import FLOATS, all_typed
from ggml_opencl.table import Launch, defines, items, table
from ggml_py.ops.rope import NORMAL, VISION
from ggml_py.tensor import Tensor


def yarn(node: Tensor) -> tuple[float, float, float]:
    """Return the magnitude, and the pairs between which frequencies blend (arXiv 2309.00071)."""
    if node.param("ext_factor") == 0:
        return node.param("attn_factor"), 0.0, 0.0
    n_dims, base = node.param("n_dims"), node.param("freq_base")

    def dim(n_rotations: float) -> float:
        with np.errstate(divide="ignore", invalid="ignore"):  # no rotations at all, or none but 1
            turns = node.param("n_ctx_orig") / (np.float64(n_rotations) * 2 * math.pi)
            return float(n_dims * np.log(turns) / np.float64(2 * math.log(base)))

    low, high = 0.0, -math.inf  # with no original context no pair is beyond it
    if node.param("n_ctx_orig") > 0:
        low = max(0, np.floor(dim(node.param("beta_fast"))))
        high = min(n_dims - 1, np.ceil(dim(node.param("beta_slow"))))
    magnitude = node.param("attn_factor") * (1 - 0.1 * math.log(node.param("freq_scale")))
    return magnitude, float(low), float(high)


def pairs(node: Tensor) -> int:
    """Return the number of pairs of channels that are turned."""
    n_dims: int = node.param("n_dims")
    return n_dims if node.param("mode") == VISION else n_dims // 2


def arguments(node: Tensor) -> tuple[tuple[Tensor, ...], tuple[int | float, ...]]:
    """Return positions and frequency factors, and the scalars of kernels/rope/_turn.cl."""
    pos, factors = node.source(1), node.optional(2)
    n_dims, mode, n_pairs = node.param("n_dims"), node.param("mode"), pairs(node)
    apart, step = (1, 2) if mode == NORMAL else (n_pairs, 1)
    scalars: list[int | float] = [n_dims, mode, n_pairs, node.param("n_offs"), apart, step]
    scalars.append(math.log(node.param("freq_base")))
    scalars += [float(node.param("freq_scale")), float(node.param("ext_factor")), *yarn(node)]
    scalars += [node.param(f"section_{c}") for c in "thwe"]
    return (pos, pos if factors is None else factors), tuple(scalars)


def rope_macros(node: Tensor, direction: int, **more: int) -> tuple[tuple[str, int], ...]:
    """Return the macros of kernels/rope/_turn.cl."""
    return defines(FACTORS=int(node.optional(2) is not None), DIRECTION=direction, **more)


def rotation(node: Tensor, direction: int) -> list[Launch]:
    a, (turns, scalars) = node.source(0), arguments(node)
    n = items((a.ne[0] - pairs(node)) * a.n_rows)
    return [Launch("rope", "rope", (a, *turns, node), n, scalars, rope_macros(node, direction))]


@table.op("ROPE", all_typed((0, -1), *FLOATS))
def rope(node: Tensor) -> list[Launch]:
    return rotation(node, 1)


@table.op("ROPE_BACK", all_typed((0, -1), *FLOATS))
def rope_back(node: Tensor) -> list[Launch]:
    return rotation(node, -1)

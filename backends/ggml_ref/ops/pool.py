"""NumPy references of the ops in ggml_py/ops/pool.py."""

from __future__ import annotations

import numpy as np

from ggml_py.tensor import Tensor
from ggml_ref.functions import max_along, maximum, mean, total
from ggml_ref.ops.conv import unfold
from ggml_ref.table import table
from ggml_ref.values import Values

LOWEST = -np.finfo(np.float32).max  # the maximum of nothing


@table.op("POOL_1D")
def pool_1d(node: Tensor, a: Values) -> Values:
    axes = [(node.ne[0], node.param("s0"), node.param("p0"), 1)]
    kernel = (node.param("k0"),)
    inside = unfold(np.ones(a.shape[-1]), kernel, axes)
    x = unfold(a, kernel, axes)
    if node.param("kind") == 0:
        return max_along(np.where(inside, x, LOWEST))
    return total(x) / maximum(total(inside), 1)


@table.op("POOL_2D")
def pool_2d(node: Tensor, a: Values) -> Values:
    axes = [(node.ne[i], node.param(f"s{i}"), node.param(f"p{i}"), 1) for i in (1, 0)]
    kernel = (node.param("k1"), node.param("k0"))
    x = unfold(a, kernel, axes)
    if node.param("kind") == 0:
        inside = unfold(np.ones(a.shape[-2:]), kernel, axes)
        return max_along(np.where(inside, x, LOWEST), (-2, -1))
    return mean(x, (-2, -1))

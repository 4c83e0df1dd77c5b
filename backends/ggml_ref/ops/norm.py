"""NumPy references of the ops in ggml_py/ops/norm.py."""

from __future__ import annotations

import numpy as np

from ggml_py.tensor import Tensor
from ggml_ref.functions import maximum, mean, sqrt, total
from ggml_ref.table import table
from ggml_ref.values import Values


@table.op("RMS_NORM")
def rms_norm(node: Tensor, x: Values) -> Values:
    return x / sqrt(mean(x * x) + node.param("eps"))


@table.op("NORM")
def norm(node: Tensor, x: Values) -> Values:
    x = x - mean(x)
    return x / sqrt(mean(x * x) + node.param("eps"))


@table.op("L2_NORM")
def l2_norm(node: Tensor, x: Values) -> Values:
    length = sqrt(total(x * x))
    return x / maximum(length, node.param("eps"))


@table.op("GROUP_NORM")
def group_norm(node: Tensor, x: Values) -> Values:
    """Normalize groups of ceil(ne2 / n_groups) channels; the last may be smaller."""
    size = -(-x.shape[1] // node.param("n_groups"))
    out = np.empty_like(x)
    for start in range(0, x.shape[1], size):
        part = x[:, start : start + size]
        part = part - mean(part, (1, 2, 3))
        variance = mean(part * part, (1, 2, 3))
        out[:, start : start + size] = part / sqrt(variance + node.param("eps"))
    return out

"""References of ggml_py/ops/norm.py."""

from __future__ import annotations

import numpy as np

from ggml_py.tensor import Tensor
from ggml_ref.table import table
from ggml_ref.values import Values


@table.op("RMS_NORM")
def rms_norm(node: Tensor, x: Values) -> Values:
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + node.param("eps"))


@table.op("NORM")
def norm(node: Tensor, x: Values) -> Values:
    x = x - x.mean(axis=-1, keepdims=True)
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + node.param("eps"))


@table.op("L2_NORM")
def l2_norm(node: Tensor, x: Values) -> Values:
    length = np.sqrt((x * x).sum(axis=-1, keepdims=True))
    return x / np.maximum(length, node.param("eps"))


@table.op("GROUP_NORM")
def group_norm(node: Tensor, x: Values) -> Values:
    """Groups of ceil(ne2 / n_groups) channels; the last may be smaller."""
    size = -(-x.shape[1] // node.param("n_groups"))
    out = np.empty_like(x)
    for start in range(0, x.shape[1], size):
        part = x[:, start : start + size]
        part = part - part.mean(axis=(1, 2, 3), keepdims=True)
        variance = (part * part).mean(axis=(1, 2, 3), keepdims=True)
        out[:, start : start + size] = part / np.sqrt(variance + node.param("eps"))
    return out

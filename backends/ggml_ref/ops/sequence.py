"""NumPy references of the ops in ggml_py/ops/sequence.py."""

from __future__ import annotations

import numpy as np

from ggml_py.tensor import Tensor
from ggml_ref.table import table
from ggml_ref.values import Values


@table.op("ARANGE")
def arange(node: Tensor) -> Values:
    start, step = float(node.param("start")), float(node.param("step"))
    return start + step * np.arange(node.ne[0], dtype=np.float64)


@table.op("TIMESTEP_EMBEDDING")
def timestep_embedding(node: Tensor, a: Values) -> Values:
    half = node.param("dim") // 2
    frequencies = node.param("max_period") ** (-np.arange(half) / max(half, 1))
    angles = a[0, 0, 0, :, None] * frequencies
    odd = np.zeros((a.shape[-1], node.param("dim") % 2))
    return np.concatenate([np.cos(angles), np.sin(angles), odd], axis=1)

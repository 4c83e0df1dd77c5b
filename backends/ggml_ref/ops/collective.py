"""NumPy reference of the op in ggml_py/ops/collective.py."""

from __future__ import annotations

import numpy as np

from ggml_py.tensor import Tensor
from ggml_ref.table import table
from ggml_ref.values import load, store


@table.step("REDUCE")
def all_reduce(node: Tensor) -> None:
    receivers = node.param("receivers")
    parts = [(i, t) for i, t in enumerate(node.src) if t is not None]
    added = (load(t) for i, t in parts if not receivers >> i & 1)
    total = sum(added, start=np.zeros(node.ne[::-1]))
    for _, t in parts:
        store(t, total)

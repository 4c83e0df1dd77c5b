"""NumPy references of the ops in ggml_py/ops/pad.py."""

from __future__ import annotations

import numpy as np

from ggml_py.tensor import Tensor
from ggml_ref.table import table
from ggml_ref.values import Values


@table.op("PAD")
def pad(node: Tensor, a: Values) -> Values:
    widths = [(node.param(f"lp{i}"), node.param(f"rp{i}")) for i in (3, 2, 1, 0)]
    return np.pad(a, widths, mode="wrap" if node.param("circular") else "constant")


@table.op("PAD_REFLECT_1D")
def pad_reflect_1d(node: Tensor, a: Values) -> Values:
    width = (node.param("p0"), node.param("p1"))
    return np.pad(a, [(0, 0), (0, 0), (0, 0), width], mode="reflect")


@table.op("ROLL")
def roll(node: Tensor, a: Values) -> Values:
    return np.roll(a, [node.param(f"shift{i}") for i in range(4)], axis=(3, 2, 1, 0))

"""NumPy references of the ops in ggml_py/ops/concat.py."""

from __future__ import annotations

import numpy as np

from ggml_py.tensor import Tensor
from ggml_ref.ops._shapes import tile
from ggml_ref.table import table
from ggml_ref.values import Values, elements


@table.step("CONCAT")
def concat(node: Tensor) -> None:
    a, b = node.sources(2)
    elements(node)[...] = np.concatenate([elements(a), elements(b)], axis=3 - node.param("dim"))


@table.op("REPEAT")
def repeat(node: Tensor, a: Values) -> Values:
    return tile(a, node.ne[::-1])

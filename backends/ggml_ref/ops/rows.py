"""NumPy references of the ops in ggml_py/ops/rows.py."""

from __future__ import annotations

import numpy as np

from ggml_py.tensor import Tensor
from ggml_ref.indices import check_indices
from ggml_ref.ops._shapes import tile
from ggml_ref.table import table
from ggml_ref.values import Integers, load, store


def _rows(ids: Integers) -> tuple[Integers, Integers, Integers]:
    """Index (i3, i2, i1) of the rows ids [B3, B2, r] of each batch."""
    i3, i2, _ = np.ogrid[tuple(slice(n) for n in ids.shape)]
    return i3, i2, ids


@table.step("GET_ROWS")
def get_rows(node: Tensor) -> None:
    a, ids = node.sources()
    rows = check_indices(node, load(ids)[0], a.ne[1])
    store(node, load(a, _rows(rows)))


@table.step("SET_ROWS")
def set_rows(node: Tensor) -> None:
    src, idx, _ = node.sources()
    ids = tile(check_indices(node, load(idx)[0], node.ne[1]), src.ne[:0:-1])
    store(node, load(src), _rows(ids))

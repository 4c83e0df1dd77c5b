"""NumPy references of the ops in ggml_py/ops/matrix.py."""

from __future__ import annotations

import numpy as np

from ggml_py.tensor import Tensor
from ggml_ref.indices import check_indices
from ggml_ref.ops._shapes import stretch
from ggml_ref.table import table
from ggml_ref.values import Values, load, store


@table.op("MUL_MAT")
def mul_mat(node: Tensor, a: Values, b: Values) -> Values:
    """Return the exact product with the dequantized weight, b not rounded to its type."""
    if b.shape[:2] != (1, 1) and a.shape[:2] != (1, 1):
        a = stretch(stretch(a, 0, b.shape[0]), 1, b.shape[1])
    return b @ a.swapaxes(-1, -2)


@table.step("MUL_MAT_ID")
def mul_mat_id(node: Tensor) -> None:
    """Multiply by the chosen experts, reading only those that some token uses."""
    experts, b, ids = node.sources()
    x = load(b)[0]  # [T, b.ne1, k]
    n, first = experts.ne[2], node.param("first")
    chosen = check_indices(node, load(ids)[0, 0], node.param("of") or n) - first  # [T, n_used]
    out = np.zeros((*chosen.shape, experts.ne[1]))
    for expert in np.unique(chosen[(chosen >= 0) & (chosen < n)]):
        token, slot = np.nonzero(chosen == expert)
        out[token, slot] = x[token, slot % x.shape[1]] @ load(experts, (0, expert)).T
    store(node, out[None])


@table.op("OUT_PROD")
def out_prod(node: Tensor, a: Values, b: Values) -> Values:
    return b.swapaxes(-1, -2) @ stretch(stretch(a, 0, b.shape[0]), 1, b.shape[1])


@table.op("SOLVE_TRI")
def solve_tri(node: Tensor, a: Values, b: Values) -> Values:
    """Forward substitution, row by row."""
    x = np.zeros_like(b)
    for i in range(a.shape[-1]):
        known = a[..., i : i + 1, :i] @ x[..., :i, :]
        x[..., i, :] = (b[..., i, :] - known[..., 0, :]) / a[..., i, i, None]
    return x


@table.op("DIAG")
def diag(node: Tensor, a: Values) -> Values:
    return np.where(np.eye(a.shape[-1], dtype=bool), a, 0)

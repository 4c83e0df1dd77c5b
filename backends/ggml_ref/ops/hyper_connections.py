"""References of ggml_py/ops/hyper_connections.py."""

from __future__ import annotations

import numpy as np

from ggml_py.ops.hyper_connections import STREAMS
from ggml_py.tensor import Tensor
from ggml_ref.table import table
from ggml_ref.values import Values


@table.op("DSV4_HC_PRE")
def dsv4_hc_pre(node: Tensor, x: Values, weights: Values) -> Values:
    if node.param("gated"):
        return node.param("scale") * (x[0] / (1 + np.exp(-weights[0]))).sum(axis=1)
    return node.param("scale") * np.einsum("tsn,ts->tn", x[0], weights[0, 0])


@table.op("DSV4_HC_COMB")
def dsv4_hc_comb(node: Tensor, mixes: Values, scale: Values, base: Values) -> Values:
    eps = node.param("eps")
    x = (mixes[0, 0] * scale[0, 0, 0, 2] + base[0, 0, 0])[:, 2 * STREAMS :]
    x = np.exp(x.reshape(-1, STREAMS, STREAMS))  # [T, from, to]
    x = x / x.sum(axis=2, keepdims=True) + eps
    x = x / (x.sum(axis=1, keepdims=True) + eps)
    for _ in range(1, node.param("n_iter")):
        x = x / (x.sum(axis=2, keepdims=True) + eps)
        x = x / (x.sum(axis=1, keepdims=True) + eps)
    return x


@table.op("DSV4_HC_POST")
def dsv4_hc_post(
    node: Tensor, x: Values, residual: Values, post: Values, comb: Values | None = None
) -> Values:
    new = np.einsum("tn,ts->tsn", x[0, 0], post[0, 0])
    return new + (residual[0] if comb is None else comb[0].swapaxes(1, 2) @ residual[0])

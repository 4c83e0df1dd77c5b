"""NumPy references of the ops in ggml_py/ops/hyper_connections.py."""

from __future__ import annotations

from ggml_py.ops.hyper_connections import STREAMS
from ggml_py.tensor import Tensor
from ggml_ref.functions import einsum, exp, total
from ggml_ref.table import table
from ggml_ref.values import Values


@table.op("DSV4_HC_PRE")
def dsv4_hc_pre(node: Tensor, x: Values, weights: Values) -> Values:
    scale = float(node.param("scale"))
    if node.param("gated"):
        return scale * total(x[0] / (1 + exp(-weights[0])), 1)
    return scale * einsum("tsn,ts->tn", x[0], weights[0, 0])


@table.op("DSV4_HC_COMB")
def dsv4_hc_comb(node: Tensor, mixes: Values, scale: Values, base: Values) -> Values:
    eps = float(node.param("eps"))
    x = (mixes[0, 0] * scale[0, 0, 0, 2] + base[0, 0, 0])[:, 2 * STREAMS :]
    x = exp(x.reshape(-1, STREAMS, STREAMS))  # [T, from, to]
    x = x / total(x, 2) + eps
    x = x / (total(x, 1) + eps)
    for _ in range(1, node.param("n_iter")):
        x = x / (total(x, 2) + eps)
        x = x / (total(x, 1) + eps)
    return x


@table.op("DSV4_HC_POST")
def dsv4_hc_post(
    node: Tensor, x: Values, residual: Values, post: Values, comb: Values | None = None
) -> Values:
    new = einsum("tn,ts->tsn", x[0, 0], post[0, 0])
    old: Values = residual[0] if comb is None else comb[0].swapaxes(1, 2) @ residual[0]
    return new + old

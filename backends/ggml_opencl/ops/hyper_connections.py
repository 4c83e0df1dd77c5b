"""OpenCL launchers of the ops in ggml_py/ops/hyper_connections.py."""

from __future__ import annotations

from ggml_opencl.conditions import all_typed
from ggml_opencl.table import Launch, defines, items, table
from ggml_py.tensor import Tensor


@table.op("DSV4_HC_PRE", all_typed((0, 1, -1), "f32"))
def dsv4_hc_pre(node: Tensor) -> list[Launch]:
    x, weights = node.sources()
    scale = float(node.param("scale"))
    n = items(node.n_elements)
    kernel = "dsv4_hc_pre_gated" if node.param("gated") else "dsv4_hc_pre"
    return [Launch("hyper_connections", kernel, (x, weights, node), n, (scale,), defines(READ=1))]


@table.op("DSV4_HC_COMB", all_typed((*range(3), -1), "f32"))
def dsv4_hc_comb(node: Tensor) -> list[Launch]:
    tensors, n = (*node.sources(), node), items(node.ne[2])
    scalars = (float(node.param("eps")), node.param("n_iter"))
    given = defines(MATRIX=1)
    return [Launch("hyper_connections", "dsv4_hc_comb", tensors, n, scalars, given)]


@table.op("DSV4_HC_POST", all_typed((*range(4), -1), "f32"))
def dsv4_hc_post(node: Tensor) -> list[Launch]:
    comb = node.optional(3)
    given = defines(STREAMS=1, MIXED=int(comb is not None))
    tensors = (*node.sources(3), node if comb is None else comb, node)
    n = items(node.n_elements)
    return [Launch("hyper_connections", "dsv4_hc_post", tensors, n, (), given)]

"""Launcher of ggml_py/ops/gating.py."""

from __future__ import annotations

from ggml_opencl.conditions import all_typed
from ggml_opencl.table import Launch, items, table
from ggml_py.tensor import Tensor


@table.op("FUSED_MUL_UNARY", all_typed((0, 1, -1), "f32"))
def fused_mul_unary(node: Tensor) -> list[Launch]:
    scalars = (node.param("kind"), float(node.param("limit")))
    tensors = (*node.src, node)
    return [Launch("gating", "fused_mul_unary", tensors, items(node.n_elements), scalars)]

"""OpenCL launchers of the ops in ggml_py/ops/glu.py."""

from __future__ import annotations

from ggml_opencl.conditions import FLOATS, READABLE, all_typed
from ggml_opencl.table import Launch, items, table
from ggml_py.tensor import Tensor

PLAIN = all_typed((0, 1, -1), *READABLE)


def launch_glu(op: str, node: Tensor, alpha: float = 0.0, limit: float = 0.0) -> list[Launch]:
    """Return launches for two tensors, or one's halves (the second gates if `swapped`)."""
    a, b = node.source(0), node.optional(1)
    starts = (0, 0)
    if b is None:
        starts = (node.ne[0], 0) if node.param("swapped") else (0, node.ne[0])
    scalars = (*starts, float(alpha), float(limit))
    tensors = (a, a if b is None else b, node)
    return [Launch("glu", op.lower(), tensors, items(node.n_elements), scalars)]


def _declare_glu(op: str) -> None:
    @table.op(op, PLAIN)
    def launch(node: Tensor) -> list[Launch]:
        return launch_glu(op, node)


for _op in ("REGLU", "GEGLU", "SWIGLU", "GEGLU_ERF", "GEGLU_QUICK"):
    _declare_glu(_op)


@table.op("SWIGLU_OAI", all_typed((0, 1, -1), *FLOATS))
def swiglu_oai(node: Tensor) -> list[Launch]:
    return launch_glu("SWIGLU_OAI", node, node.param("alpha"), node.param("limit"))


@table.op("SWIGLU_CLAMP", PLAIN)
def swiglu_clamp(node: Tensor) -> list[Launch]:
    return launch_glu("SWIGLU_CLAMP", node, limit=node.param("limit"))


@table.op("FUSED_MUL_UNARY", all_typed((0, 1, -1), "f32"))
def fused_mul_unary(node: Tensor) -> list[Launch]:
    scalars = (node.param("kind"), float(node.param("limit")))
    tensors = (*node.sources(), node)
    return [Launch("glu", "fused_mul_unary", tensors, items(node.n_elements), scalars)]

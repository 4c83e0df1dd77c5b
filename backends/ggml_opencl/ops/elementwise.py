"""Launchers of ggml_py/ops/elementwise.py."""

from __future__ import annotations

from ggml_opencl.conditions import FLOATS, READABLE, all_typed, every, typed
from ggml_opencl.table import Launch, defines, items, table
from ggml_py.tensor import Tensor

BINARIES = defines(BINARIES=1)
UNARIES = defines(UNARIES=1)
GATES = defines(GATES=1)


def binary(kernel: str, a: Tensor, b: Tensor, dst: Tensor) -> Launch:
    return Launch("elementwise", kernel, (a, b, dst), items(dst.n_elements), (), BINARIES)


def _binary(op: str) -> None:
    @table.op(op, all_typed((0, 1, -1), *READABLE))
    def launch(node: Tensor) -> list[Launch]:
        return [binary(op.lower(), node.src[0], node.src[1], node)]


for _op in ("ADD", "SUB", "MUL", "DIV"):
    _binary(_op)


@table.op("ADD_ID", every(all_typed((0, 1, -1), *FLOATS), typed(2, "i32")))
def add_id(node: Tensor) -> list[Launch]:
    a, b, ids = node.src
    tensors = (a, b, node, ids)
    return [Launch("elementwise", "add_id", tensors, items(node.n_elements), (), BINARIES)]


def unary(kernel: str, node: Tensor, p: float = 0.0, q: float = 0.0) -> list[Launch]:
    n = items(node.n_elements)
    return [Launch("elementwise", kernel, (node.src[0], node), n, (float(p), float(q)), UNARIES)]


@table.op("SCALE", all_typed((0, -1), *READABLE))
def scale(node: Tensor) -> list[Launch]:
    return unary("op_scale", node, node.param("scale"), node.param("bias"))


@table.op("CLAMP", all_typed((0, -1), *READABLE))
def clamp(node: Tensor) -> list[Launch]:
    return unary("op_clamp", node, node.param("min"), node.param("max"))


def _unary(op: str) -> None:
    @table.op(op, all_typed((0, -1), *READABLE))
    def launch(node: Tensor) -> list[Launch]:
        return unary(f"op_{op.lower()}", node)


for _op in (
    "SQR", "SQRT", "LOG", "SIN", "COS", "ABS", "SGN", "NEG", "STEP", "TANH", "ELU", "RELU",
    "SIGMOID", "GELU", "GELU_QUICK", "GELU_ERF", "SILU", "HARDSWISH", "HARDSIGMOID", "EXP",
    "EXPM1", "SOFTPLUS", "FLOOR", "CEIL", "ROUND", "TRUNC",
):  # fmt: skip
    _unary(_op)


def gated(op: str, node: Tensor, alpha: float = 0.0, limit: float = 0.0) -> list[Launch]:
    """Two tensors, or the halves of one's rows (the second half gates if `swapped`)."""
    a, b = (*node.src, None)[:2]
    starts = (0, 0)
    if b is None:
        starts = (node.ne[0], 0) if node.param("swapped") else (0, node.ne[0])
    scalars = (*starts, float(alpha), float(limit))
    tensors = (a, a if b is None else b, node)
    return [Launch("elementwise", op.lower(), tensors, items(node.n_elements), scalars, GATES)]


def _gated(op: str) -> None:
    @table.op(op, all_typed((0, 1, -1), *READABLE))
    def launch(node: Tensor) -> list[Launch]:
        return gated(op, node)


for _op in ("REGLU", "GEGLU", "SWIGLU", "GEGLU_ERF", "GEGLU_QUICK"):
    _gated(_op)


@table.op("SWIGLU_OAI", all_typed((0, 1, -1), *FLOATS))
def swiglu_oai(node: Tensor) -> list[Launch]:
    return gated("SWIGLU_OAI", node, node.param("alpha"), node.param("limit"))

"""Launchers of ggml_py/ops/unary.py."""

from __future__ import annotations

from ggml_opencl.conditions import READABLE, all_typed
from ggml_opencl.table import Launch, items, table
from ggml_py.tensor import Tensor

PLAIN = all_typed((0, -1), *READABLE)


def _launch(kernel: str, node: Tensor, *scalars: float) -> list[Launch]:
    return [Launch("unary", kernel, (node.source(0), node), items(node.n_elements), scalars)]


def _unary(op: str) -> None:
    @table.op(op, PLAIN)
    def launch(node: Tensor) -> list[Launch]:
        return _launch(f"op_{op.lower()}", node, 0.0, 0.0)


for _op in (
    "SQR", "SQRT", "LOG", "SIN", "COS", "ABS", "SGN", "NEG", "STEP", "TANH", "ELU", "RELU",
    "SIGMOID", "GELU", "GELU_QUICK", "GELU_ERF", "SILU", "HARDSWISH", "HARDSIGMOID", "EXP",
    "EXPM1", "SOFTPLUS", "FLOOR", "CEIL", "ROUND", "TRUNC",
):  # fmt: skip
    _unary(_op)


@table.op("LEAKY_RELU", PLAIN)
def leaky_relu(node: Tensor) -> list[Launch]:
    return _launch("op_leaky_relu", node, float(node.param("slope")), 0.0)


@table.op("XIELU", PLAIN)
def xielu(node: Tensor) -> list[Launch]:
    names = ("alpha_n", "alpha_p", "beta", "eps")
    return _launch("xielu", node, *(float(node.param(name)) for name in names))

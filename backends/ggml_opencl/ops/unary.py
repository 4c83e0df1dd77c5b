"""OpenCL launchers of the ops in ggml_py/ops/unary.py."""

from __future__ import annotations

from ggml_opencl.ops._elements import NUMBERS, PLAIN, by_element
from ggml_opencl.table import Launch, items, table
from ggml_py.tensor import Tensor


def _unary(op: str, *names: str) -> None:
    NUMBERS[op] = names

    @table.op(op, PLAIN)
    def launch(node: Tensor) -> list[Launch]:
        return by_element(node)


UNARIES = """
    SQR SQRT LOG SIN COS ABS SGN NEG STEP TANH ELU RELU SIGMOID GELU GELU_QUICK GELU_ERF SILU
    HARDSWISH HARDSIGMOID EXP EXPM1 SOFTPLUS FLOOR CEIL ROUND TRUNC
"""
for _op in UNARIES.split():
    _unary(_op)
_unary("LEAKY_RELU", "slope")


@table.op("XIELU", PLAIN)
def xielu(node: Tensor) -> list[Launch]:
    tensors, n = (node.source(0), node), items(node.n_elements)
    names = ("alpha_n", "alpha_p", "beta", "eps")
    return [Launch("unary", "xielu", tensors, n, tuple(float(node.param(name)) for name in names))]

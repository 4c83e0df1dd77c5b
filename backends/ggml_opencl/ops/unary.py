"""Launchers of ggml_py/ops/unary.py."""

from __future__ import annotations

from ggml_opencl.conditions import READABLE, all_typed
from ggml_opencl.ops._elements import function
from ggml_opencl.table import Launch, items, table
from ggml_py.tensor import Tensor

for _op in (
    "SQR", "SQRT", "LOG", "SIN", "COS", "ABS", "SGN", "NEG", "STEP", "TANH", "ELU", "RELU",
    "SIGMOID", "GELU", "GELU_QUICK", "GELU_ERF", "SILU", "HARDSWISH", "HARDSIGMOID", "EXP",
    "EXPM1", "SOFTPLUS", "FLOOR", "CEIL", "ROUND", "TRUNC",
):  # fmt: skip
    function(_op)
function("LEAKY_RELU", "slope")


@table.op("XIELU", all_typed((0, -1), *READABLE))
def xielu(node: Tensor) -> list[Launch]:
    tensors, n = (node.source(0), node), items(node.n_elements)
    names = ("alpha_n", "alpha_p", "beta", "eps")
    return [Launch("unary", "xielu", tensors, n, tuple(float(node.param(name)) for name in names))]

"""Launchers of ggml_py/ops/activation.py."""

from __future__ import annotations

from ggml_opencl.conditions import READABLE, all_typed
from ggml_opencl.table import Launch, defines, items, table
from ggml_py.tensor import Tensor

UNARY = all_typed((0, -1), *READABLE)


def _unary(kernel: str, node: Tensor, *names: str) -> list[Launch]:
    scalars = tuple(float(node.param(name)) for name in names)
    n, given = items(node.n_elements), defines(UNARIES=1)
    return [Launch("activation", kernel, (node.src[0], node), n, scalars, given)]


@table.op("LEAKY_RELU", UNARY)
def leaky_relu(node: Tensor) -> list[Launch]:
    return _unary("leaky_relu", node, "slope")


@table.op("XIELU", UNARY)
def xielu(node: Tensor) -> list[Launch]:
    return _unary("xielu", node, "alpha_n", "alpha_p", "beta", "eps")


@table.op("SWIGLU_CLAMP", all_typed((0, 1, -1), *READABLE))
def swiglu_clamp(node: Tensor) -> list[Launch]:
    n, scalars = items(node.n_elements), (float(node.param("limit")),)
    return [Launch("activation", "swiglu_clamp", (*node.src, node), n, scalars, defines(GATES=1))]

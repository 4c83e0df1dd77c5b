"""Functions of single elements and of up to two numbers: those of kernels/_unary.cl."""

from __future__ import annotations

from ggml_opencl.conditions import READABLE, all_typed
from ggml_opencl.table import Launch, items, table
from ggml_py.tensor import Tensor

NUMBERS: dict[str, tuple[str, ...]] = {}  # by op: the names of its numbers


def function(op: str, *names: str) -> None:
    """Register the launcher of an op, whose numbers are parameters of these names."""
    NUMBERS[op] = names

    @table.op(op, all_typed((0, -1), *READABLE))
    def launch(node: Tensor) -> list[Launch]:
        tensors, n = (node.source(0), node), items(node.n_elements)
        return [Launch("unary", f"op_{op.lower()}", tensors, n, numbers(node))]


def numbers(node: Tensor) -> tuple[float, float]:
    """Of a node; 0 for those that there are not."""
    p, q, *_ = (*(float(node.param(name)) for name in NUMBERS[node.op]), 0.0, 0.0)
    return p, q

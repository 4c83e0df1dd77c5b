"""Elementwise functions with up to two scalar parameters, in kernels/_unary.cl."""

from __future__ import annotations

from ggml_opencl.conditions import READABLE, all_typed
from ggml_opencl.table import Launch, items
from ggml_py.tensor import Tensor

PLAIN = all_typed((0, -1), *READABLE)
NUMBERS: dict[str, tuple[str, ...]] = {}  # by op: names of its scalar params


def numbers(node: Tensor) -> tuple[float, float]:
    """Return two scalars from a node's params; 0 for a missing one."""
    p, q, *_ = (*(float(node.param(name)) for name in NUMBERS[node.op]), 0.0, 0.0)
    return p, q


def by_element(node: Tensor) -> list[Launch]:
    tensors, n = (node.source(0), node), items(node.n_elements)
    return [Launch("unary", f"op_{node.op.lower()}", tensors, n, numbers(node))]

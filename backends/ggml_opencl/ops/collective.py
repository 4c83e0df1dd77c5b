"""OpenCL launcher of the op in ggml_py/ops/collective.py."""

from __future__ import annotations

from ggml_opencl.conditions import READABLE, needs_type, quantizable
from ggml_opencl.table import Launch, block_macros, items, table
from ggml_py.tensor import MAX_SRC, Tensor


def parts(node: Tensor, groups: tuple[int, int, int], given: tuple[tuple[str, int], ...]) -> Launch:
    """Return the launch over the parts that are present, filled up to MAX_SRC arguments."""
    there = [(i, t) for i, t in enumerate(node.src) if t is not None]
    receivers = sum((node.param("receivers") >> i & 1) << k for k, (i, _) in enumerate(there))
    tensors = [t for _, t in there]
    filled = (*tensors, *tensors[-1:] * (MAX_SRC - len(tensors)))
    scalars = (len(tensors), receivers)
    return Launch("collective", "reduce", filled, groups, scalars, given, (node.type.name,))


def elements(node: Tensor) -> list[Launch]:
    return [parts(node, items(node.n_elements), ())]


def blocks(node: Tensor) -> list[Launch]:
    n = items(node.n_elements // node.type.block_size)
    return [parts(node, n, block_macros(node.type))]


table.add("REDUCE", elements, needs_type(-1, *READABLE))
table.add("REDUCE", blocks, quantizable)

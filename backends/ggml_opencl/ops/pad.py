"""OpenCL launchers of the ops in ggml_py/ops/pad.py."""

from __future__ import annotations

from ggml_opencl.conditions import READABLE, all_typed
from ggml_opencl.ops._move import move, same_type
from ggml_opencl.table import Launch, items, table
from ggml_py.tensor import Tensor


@table.op("PAD", same_type)
def pad(node: Tensor) -> list[Launch]:
    before = [node.param(f"lp{i}") for i in range(4)]
    scalars = (*before, node.param("circular"))
    return [move("pad", "pad", node.source(0), node, node.n_elements, *scalars)]


@table.op("ROLL", all_typed((0, -1), *READABLE))
def roll(node: Tensor) -> list[Launch]:
    shifts = tuple(node.param(f"shift{i}") for i in range(4))
    return [Launch("pad", "roll", (node.source(0), node), items(node.n_elements), shifts)]


@table.op("PAD_REFLECT_1D", all_typed((0, -1), *READABLE))
def pad_reflect_1d(node: Tensor) -> list[Launch]:
    n, scalars = items(node.n_elements), (node.param("p0"),)
    return [Launch("pad", "pad_reflect_1d", (node.source(0), node), n, scalars)]

"""OpenCL launchers of the ops in ggml_py/ops/backward.py."""

from __future__ import annotations

from ggml_opencl.conditions import FLOATS, all_conditions, all_typed, needs_type
from ggml_opencl.table import Launch, defines, items, table
from ggml_py.tensor import Tensor

ELEMENTS = defines(ELEMENTS=1)
ROWS = defines(ROWS=1)
ALL_F32 = all_typed((0, 1, -1), "f32")


def _by_row(kernel: str, node: Tensor, scalar: float) -> list[Launch]:
    tensors, groups = (*node.sources(), node), (node.n_rows, 1, 1)
    return [Launch("backward", kernel, tensors, groups, (float(scalar),), ROWS)]


@table.op("RMS_NORM_BACK", ALL_F32)
def rms_norm_back(node: Tensor) -> list[Launch]:
    return _by_row("rms_norm_back", node, node.param("eps"))


@table.op("SOFT_MAX_BACK", ALL_F32)
def soft_max_back(node: Tensor) -> list[Launch]:
    return _by_row("soft_max_back", node, node.param("scale"))


@table.op("SILU_BACK", ALL_F32)
def silu_back(node: Tensor) -> list[Launch]:
    n = items(node.n_elements)
    return [Launch("backward", "silu_back", (*node.sources(), node), n, (), ELEMENTS)]


@table.op(
    "GET_ROWS_BACK",
    all_conditions(needs_type(0, *FLOATS), needs_type(1, "i32"), needs_type(-1, "f32")),
)
def get_rows_back(node: Tensor) -> list[Launch]:
    tensors, n = (*node.sources(), node), items(node.n_elements)
    return [Launch("backward", "get_rows_back", tensors, n, (), ELEMENTS, checked=True)]


@table.op("REPEAT_BACK", all_typed((0, -1), "f32"))
def repeat_back(node: Tensor) -> list[Launch]:
    n, given = items(node.n_elements), defines(TILES=1)
    return [Launch("backward", "repeat_back", (node.source(0), node), n, (), given)]

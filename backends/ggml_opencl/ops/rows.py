"""OpenCL launchers of the ops in ggml_py/ops/rows.py."""

from __future__ import annotations

from ggml_opencl.conditions import (
    FLOATS,
    READABLE,
    all_conditions,
    dense_rows,
    needs_quantized,
    needs_type,
    quantizable,
)
from ggml_opencl.table import Launch, block_macros, defines, items, table
from ggml_py.tensor import Tensor

PLAIN_ROWS = defines(PLAIN_ROWS=1)
GROUPED_ROWS = defines(GROUPED_ROWS=1)


@table.op("GET_ROWS", needs_type(0, *READABLE, "i32"))
def get_rows(node: Tensor) -> list[Launch]:
    a, ids = node.sources()
    n = items(node.n_elements)
    return [Launch("rows", "get_rows", (a, ids, node), n, (), PLAIN_ROWS, checked=True)]


@table.op("GET_ROWS", needs_quantized(0))
def get_groups(node: Tensor) -> list[Launch]:
    a, ids = node.sources()
    n = items(node.n_elements // 32)
    return [Launch("rows", "get_groups", (a, ids, node), n, (), GROUPED_ROWS, checked=True)]


@table.op("SET_ROWS", all_conditions(needs_type(0, *FLOATS), needs_type(-1, *READABLE)))
def set_rows(node: Tensor) -> list[Launch]:
    src, ids, _ = node.sources()
    n = items(src.n_elements)
    return [Launch("rows", "set_rows", (src, ids, node), n, (), PLAIN_ROWS, checked=True)]


@table.op("SET_ROWS", all_conditions(needs_type(0, *FLOATS), quantizable, dense_rows(-1)))
def set_blocks(node: Tensor) -> list[Launch]:
    src, ids, _ = node.sources()
    n, given = items(src.n_elements // node.type.block_size), block_macros(node.type)
    macros = (("SET_BLOCKS", 1), *given)
    return [Launch("rows", "set_blocks", (src, ids, node), n, (), macros, checked=True)]

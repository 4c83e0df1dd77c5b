"""Launchers of ggml_py/ops/training.py."""

from __future__ import annotations

from ggml_opencl.conditions import READABLE, all_typed, dense_rows, every, typed
from ggml_opencl.ops.elementwise import binary
from ggml_opencl.ops.matrix import weights
from ggml_opencl.table import Launch, defines, items, table
from ggml_py.tensor import Tensor


@table.op("OUT_PROD", every(weights, all_typed((1, -1), "f32"), dense_rows(0)))
def out_prod(node: Tensor) -> list[Launch]:
    n, given = items(-(-node.ne[0] // 32) * node.n_rows), defines(PRODUCTS=1)
    return [Launch("training", "out_prod", (*node.src, node), n, (), given)]


@table.op("ADD1", all_typed((0, 1, -1), *READABLE))
def add1(node: Tensor) -> list[Launch]:
    a, b = node.src
    return [binary("add", a, b, node)]


@table.op("COUNT_EQUAL", every(all_typed((0, 1), "i32"), typed(-1, "i64")))
def count_equal(node: Tensor) -> list[Launch]:
    tensors, given = (*node.src, node), defines(COUNTS=1)
    return [Launch("training", "count_equal", tensors, (1, 1, 1), (), given)]

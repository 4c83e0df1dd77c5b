"""Launchers of ggml_py/ops/concat.py."""

from __future__ import annotations

from ggml_opencl.ops._move import move, same_type
from ggml_opencl.table import Launch, table
from ggml_py.tensor import Tensor


@table.op("CONCAT", same_type)
def concat(node: Tensor) -> list[Launch]:
    a, b = node.sources(2)  # a third one is where they are to go
    start = [0, 0, 0, 0]
    start[node.param("dim")] = a.ne[node.param("dim")]
    return [
        move("concat", "place", a, node, a.n_elements, 0, 0, 0, 0),
        move("concat", "place", b, node, b.n_elements, *start),
    ]


@table.op("REPEAT", same_type)
def repeat(node: Tensor) -> list[Launch]:
    return [move("concat", "repeat", node.source(0), node, node.n_elements)]

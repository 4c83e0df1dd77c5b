"""OpenCL launchers of the ops in ggml_py/ops/concat.py."""

from __future__ import annotations

from ggml_opencl.ops._move import as_bytes, move, same_blocks, same_type
from ggml_opencl.table import Launch, table
from ggml_py.tensor import Tensor


@table.op("CONCAT", same_type, rank=1)
def concat(node: Tensor) -> list[Launch]:
    a, b = node.sources(2)  # an optional third source is the destination
    return places(node.param("dim"), a, b, node)


@table.op("CONCAT", same_blocks)
def concat_blocks(node: Tensor) -> list[Launch]:
    a, b = map(as_bytes, node.sources(2))
    return places(node.param("dim"), a, b, as_bytes(node))


def places(dim: int, a: Tensor, b: Tensor, dst: Tensor) -> list[Launch]:
    start = [0, 0, 0, 0]
    start[dim] = a.ne[dim]
    return [
        move("concat", "place", a, dst, a.n_elements, 0, 0, 0, 0),
        move("concat", "place", b, dst, b.n_elements, *start),
    ]


@table.op("REPEAT", same_type)
def repeat(node: Tensor) -> list[Launch]:
    return [move("concat", "repeat", node.source(0), node, node.n_elements)]

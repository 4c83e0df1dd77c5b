"""OpenCL launchers of the ops in ggml_py/ops/copy.py."""

from __future__ import annotations

from ggml_opencl.conditions import (
    READABLE,
    all_conditions,
    all_typed,
    dense_rows,
    needs_quantized,
    needs_type,
    quantizable,
)
from ggml_opencl.ops._move import as_bytes, move, rebase_view, same_blocks, same_type
from ggml_opencl.ops.arithmetic import binary
from ggml_opencl.table import Launch, block_macros, defines, items, table
from ggml_py.tensor import Shape, Tensor

CONVERTIBLE = (*READABLE, "i32", "i64")


def copies(node: Tensor) -> list[Launch]:
    return [move("copy", "cpy", node.source(0), node, node.n_elements)]


def copies_blocks(node: Tensor) -> list[Launch]:
    dst = as_bytes(node)
    return [move("copy", "cpy", as_bytes(node.source(0)), dst, dst.n_elements)]


def converts(node: Tensor) -> list[Launch]:
    return [Launch("copy", "cpy", (node.source(0), node), items(node.n_elements))]


def dequantizes(node: Tensor) -> list[Launch]:
    a, n = node.source(0), node.n_elements // 32
    return [Launch("copy", "dequantize", (a, node), items(n), (), defines(DEQUANTIZED=1))]


def quantizes(node: Tensor) -> list[Launch]:
    n, given = items(node.n_elements // node.type.block_size), block_macros(node.type)
    return [Launch("copy", "quantize", (node.source(0), node), n, (), (("QUANTIZED", 1), *given))]


for _op in ("CONT", "DUP", "CPY"):
    table.add(_op, copies, same_type, rank=2)
    table.add(_op, copies_blocks, same_blocks, rank=1)
    table.add(_op, converts, all_typed((0, -1), *CONVERTIBLE))
    table.add(_op, dequantizes, all_conditions(needs_quantized(0), needs_type(-1, *READABLE)))
    table.add(_op, quantizes, all_conditions(needs_type(0, *READABLE), quantizable, dense_rows(-1)))


def window(node: Tensor) -> Tensor:
    """Return the part of the result that SET and ACC write, as a tensor of b's shape."""
    nb: Shape = (node.nb[0], node.param("nb1"), node.param("nb2"), node.param("nb3"))
    return rebase_view(node, Tensor(node.type, node.source(1).ne, nb=nb), node.param("offset"))


def background(node: Tensor) -> list[Launch]:
    """Return launches that copy a's elements, unless the result lies in a."""
    return copies(node) if node.view_src is None else []


@table.op("SET", same_type)
def set_(node: Tensor) -> list[Launch]:
    b = node.source(1)
    return [*background(node), move("copy", "cpy", b, window(node), b.n_elements)]


@table.op("ACC", all_typed((0, 1, -1), "f32"))
def acc(node: Tensor) -> list[Launch]:
    part = window(node)
    return [*background(node), binary("add", part, node.source(1), part)]

"""Launchers of ggml_py/ops/copy.py."""

from __future__ import annotations

from ggml_opencl.conditions import (
    READABLE,
    all_typed,
    dense_rows,
    every,
    quantizable,
    quantized,
    typed,
)
from ggml_opencl.ops._move import move, same_type
from ggml_opencl.ops.arithmetic import binary
from ggml_opencl.table import Launch, defines, items, table
from ggml_py.tensor import Shape, Tensor
from ggml_py.types import I8

CONVERTIBLE = (*READABLE, "i32", "i64")


def at(base: Tensor, view: Tensor, offset: int = 0) -> Tensor:
    """`view` as a tensor in the memory of `base`."""
    view.buffer, view.offset = base.buffer, base.offset + offset
    return view


def same_blocks(node: Tensor) -> str:
    """Blocks can be moved as bytes where both tensors have the same rows, or no gaps at all."""
    a = node.source(0)
    if a.type is not node.type:
        return f"needs one type; got {a} and {node.type}"
    alike = a.ne == node.ne and a.has_contiguous_rows() and node.has_contiguous_rows()
    return "" if alike else f"needs rows of the same shape; got {a} and {node}"


def as_bytes(t: Tensor) -> Tensor:
    ne = (t.type.row_size(t.ne[0]), *t.ne[1:])
    return at(t, Tensor(I8, ne, nb=(1, *t.nb[1:])))


def copies(node: Tensor) -> list[Launch]:
    return [move("copy", "cpy", node.source(0), node, node.n_elements)]


def copies_blocks(node: Tensor) -> list[Launch]:
    a, dst = as_bytes(node.source(0)), as_bytes(node)
    return [move("copy", "cpy", a, dst, dst.n_elements)]


def converts(node: Tensor) -> list[Launch]:
    return [Launch("copy", "cpy", (node.source(0), node), items(node.n_elements))]


def dequantizes(node: Tensor) -> list[Launch]:
    a, n = node.source(0), node.n_elements // 32
    return [Launch("copy", "dequantize", (a, node), items(n), (), defines(DEQUANTIZED=1))]


def quantizes(node: Tensor) -> list[Launch]:
    a, n = node.source(0), node.n_elements // 32
    given = defines(QUANTIZED=1, BLOCK=node.type.type_size)
    return [Launch("copy", "quantize", (a, node), items(n), (), given)]


for _op in ("CONT", "DUP", "CPY"):
    table.add(_op, copies, same_type, rank=2)
    table.add(_op, copies_blocks, same_blocks, rank=1)
    table.add(_op, converts, all_typed((0, -1), *CONVERTIBLE))
    table.add(_op, dequantizes, every(quantized(0), typed(-1, *READABLE)))
    table.add(_op, quantizes, every(typed(0, *READABLE), quantizable, dense_rows(-1)))


def window(node: Tensor) -> Tensor:
    """The part of the result that SET and ACC write, as a tensor of b's shape."""
    nb: Shape = (node.nb[0], node.param("nb1"), node.param("nb2"), node.param("nb3"))
    return at(node, Tensor(node.type, node.source(1).ne, nb=nb), node.param("offset"))


def background(node: Tensor) -> list[Launch]:
    """a's elements, unless the result lives in a."""
    return copies(node) if node.view_src is None else []


@table.op("SET", same_type)
def set_(node: Tensor) -> list[Launch]:
    b = node.source(1)
    return [*background(node), move("copy", "cpy", b, window(node), b.n_elements)]


@table.op("ACC", all_typed((0, 1, -1), "f32"))
def acc(node: Tensor) -> list[Launch]:
    part = window(node)
    return [*background(node), binary("add", part, node.source(1), part)]

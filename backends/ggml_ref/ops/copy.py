"""NumPy references of the ops in ggml_py/ops/copy.py."""

from __future__ import annotations

from ggml_py.tensor import Tensor
from ggml_ref.table import table
from ggml_ref.values import copy, load, store


@table.step("CONT")
@table.step("DUP")
@table.step("CPY")
def cpy(node: Tensor) -> None:
    copy(node, node.source(0))


def window(node: Tensor) -> Tensor:
    """Return the part of the result that SET and ACC write, as a tensor of b's shape."""
    strides = (node.nb[0], node.param("nb1"), node.param("nb2"), node.param("nb3"))
    part = Tensor(node.type, node.source(1).ne, nb=strides)
    part.buffer, part.offset = node.buffer, node.offset + node.param("offset")
    return part


@table.step("SET")
def set_(node: Tensor) -> None:
    a, b = node.sources()
    copy(node, a)
    copy(window(node), b)


@table.step("ACC")
def acc(node: Tensor) -> None:
    a, b = node.sources()
    copy(node, a)
    part = window(node)
    store(part, load(part) + load(b))

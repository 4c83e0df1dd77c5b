"""Launchers of ggml_py/ops/arithmetic.py."""

from __future__ import annotations

from ggml_opencl.conditions import FLOATS, READABLE, all_typed, every, typed
from ggml_opencl.table import Launch, defines, items, table
from ggml_py.tensor import Tensor

BINARIES = defines(BINARIES=1)


def binary(kernel: str, a: Tensor, b: Tensor, dst: Tensor) -> Launch:
    return Launch("arithmetic", kernel, (a, b, dst), items(dst.n_elements), (), BINARIES)


def _binary(op: str, kernel: str) -> None:
    @table.op(op, all_typed((0, 1, -1), *READABLE))
    def launch(node: Tensor) -> list[Launch]:
        return [binary(kernel, node.source(0), node.source(1), node)]


for _op in ("ADD", "SUB", "MUL", "DIV"):
    _binary(_op, _op.lower())
_binary("ADD1", "add")


@table.op("ADD_ID", every(all_typed((0, 1, -1), *FLOATS), typed(2, "i32")))
def add_id(node: Tensor) -> list[Launch]:
    a, b, ids = node.sources()
    tensors = (a, b, node, ids)
    n = items(node.n_elements)
    return [Launch("arithmetic", "add_id", tensors, n, (), BINARIES, checked=True)]


def _numbers(kernel: str, node: Tensor, *names: str) -> list[Launch]:
    scalars = tuple(float(node.param(name)) for name in names)
    n, given = items(node.n_elements), defines(NUMBERS=1)
    return [Launch("arithmetic", kernel, (node.source(0), node), n, scalars, given)]


@table.op("SCALE", all_typed((0, -1), *READABLE))
def scale(node: Tensor) -> list[Launch]:
    return _numbers("op_scale", node, "scale", "bias")


@table.op("CLAMP", all_typed((0, -1), *READABLE))
def clamp(node: Tensor) -> list[Launch]:
    return _numbers("op_clamp", node, "min", "max")

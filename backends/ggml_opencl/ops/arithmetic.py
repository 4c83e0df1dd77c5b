"""OpenCL launchers of the ops in ggml_py/ops/arithmetic.py."""

from __future__ import annotations

from ggml_opencl.conditions import FLOATS, READABLE, all_conditions, all_typed, needs_type
from ggml_opencl.ops._elements import NUMBERS, PLAIN, by_element
from ggml_opencl.table import Launch, items, table
from ggml_py.tensor import Tensor

BINARIES = {"ADD": "add", "ADD1": "add", "SUB": "sub", "MUL": "mul", "DIV": "div"}


def binary(kernel: str, a: Tensor, b: Tensor, dst: Tensor) -> Launch:
    return Launch("arithmetic", kernel, (a, b, dst), items(dst.n_elements))


def _binary(op: str, kernel: str) -> None:
    @table.op(op, all_typed((0, 1, -1), *READABLE))
    def launch(node: Tensor) -> list[Launch]:
        return [binary(kernel, node.source(0), node.source(1), node)]


for _op, _kernel in BINARIES.items():
    _binary(_op, _kernel)


@table.op("ADD_ID", all_conditions(all_typed((0, 1, -1), *FLOATS), needs_type(2, "i32")))
def add_id(node: Tensor) -> list[Launch]:
    a, b, ids = node.sources()
    tensors = (a, b, node, ids)
    n = items(node.n_elements)
    return [Launch("arithmetic", "add_id", tensors, n, checked=True)]


def _numbers(op: str, *names: str) -> None:
    NUMBERS[op] = names

    @table.op(op, PLAIN)
    def launch(node: Tensor) -> list[Launch]:
        return by_element(node)


_numbers("SCALE", "scale", "bias")
_numbers("CLAMP", "min", "max")

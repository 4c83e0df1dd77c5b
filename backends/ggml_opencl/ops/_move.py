"""Elements moved as integers of their size."""

from __future__ import annotations

from ggml_opencl.table import Launch, items
from ggml_py.tensor import Tensor

BITS = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}


def same_type(node: Tensor) -> str:
    a = node.source(0)
    if a.type is not node.type:
        return f"needs one type; got {a} and {node.type}"
    return "" if a.type.type_size in BITS else f"needs single elements; got {a}"


def move(family: str, kernel: str, a: Tensor, dst: Tensor, n: int, *scalars: int) -> Launch:
    bits = BITS[a.type.type_size]
    return Launch(family, kernel, (a, dst), items(n), scalars, types=(bits, bits))

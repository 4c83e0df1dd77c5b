"""Elements moved as integers of their size, blocks as bytes."""

from __future__ import annotations

from ggml_opencl.table import Launch, items
from ggml_py.tensor import Tensor
from ggml_py.types import I8

BITS = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}


def same_type(node: Tensor) -> str:
    a = node.source(0)
    if a.type is not node.type:
        return f"needs one type; got {a} and {node.type}"
    return "" if a.type.type_size in BITS else f"needs single elements; got {a}"


def same_blocks(node: Tensor) -> str:
    """Return why blocks cannot be moved as bytes (other type, gaps in a row), or ""."""
    for t in (node, *node.src):
        if t is not None and t.type is not node.type:
            return f"needs one type; got {t} and {node.type}"
        if t is not None and not t.has_contiguous_rows():
            return f"needs dense rows; got {t}"
    return ""


def rebase_view(base: Tensor, view: Tensor, offset: int = 0) -> Tensor:
    """`view` as a tensor in the memory of `base`."""
    view.buffer, view.offset = base.buffer, base.offset + offset
    return view


def as_bytes(t: Tensor) -> Tensor:
    ne = (t.type.row_size(t.ne[0]), *t.ne[1:])
    return rebase_view(t, Tensor(I8, ne, nb=(1, *t.nb[1:])))


def move(family: str, kernel: str, a: Tensor, dst: Tensor, n: int, *scalars: int) -> Launch:
    bits = BITS[a.type.type_size]
    return Launch(family, kernel, (a, dst), items(n), scalars, types=(bits, bits))

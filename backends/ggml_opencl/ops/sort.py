"""Launchers of ggml_py/ops/sort.py."""

from __future__ import annotations

from ggml_opencl.table import Launch, items, table
from ggml_py.tensor import Tensor

LONGEST_SORT = 1 << 15  # an element is compared with all others


def sortable(node: Tensor) -> str:
    a = node.source(0)
    if a.type.name != "f32":
        return f"needs f32; got {a}"
    return "" if a.ne[0] <= LONGEST_SORT else f"needs rows of at most {LONGEST_SORT}; got {a}"


@table.op("ARGSORT", sortable)
def argsort(node: Tensor) -> list[Launch]:
    return ranks(node, node.param("order"))


@table.op("TOP_K", sortable)
def top_k(node: Tensor) -> list[Launch]:
    return ranks(node, 1)


def ranks(node: Tensor, descending: int) -> list[Launch]:
    a = node.source(0)
    return [Launch("sort", "argsort", (a, node), items(a.n_elements), (descending,))]

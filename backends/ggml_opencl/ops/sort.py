"""OpenCL launchers of the ops in ggml_py/ops/sort.py."""

from __future__ import annotations

from ggml_opencl.conditions import needs_type
from ggml_opencl.table import Launch, items, table
from ggml_py.tensor import Tensor

LONGEST_RANKED = 1 << 12  # maximum row length for ranking by all pairwise comparisons


@table.op("ARGSORT", needs_type(0, "f32"))
def argsort(node: Tensor) -> list[Launch]:
    a, order = node.source(0), node.param("order")
    if a.ne[0] <= LONGEST_RANKED:
        return ranks(node, order)
    return [Launch("sort", "number", (node,), items(node.n_elements)), *exchanges(node, order)]


@table.op("TOP_K", needs_type(0, "f32"))
def top_k(node: Tensor) -> list[Launch]:
    a = node.source(0)
    if a.ne[0] <= LONGEST_RANKED:
        return ranks(node, 1)
    return [Launch("sort", "select_top", (a, node), (a.n_rows, 1, 1)), *exchanges(node, 1)]


def ranks(node: Tensor, descending: int) -> list[Launch]:
    a = node.source(0)
    return [Launch("sort", "argsort", (a, node), items(a.n_elements), (descending,))]


def exchanges(node: Tensor, descending: int) -> list[Launch]:
    """Return the launches of Batcher's bitonic merge sort of each row's indices.

    All exchanges have the same direction, since the first exchanges of a merge mirror its second
    half. So the kernel can skip exchanges past a row's end.
    """
    a, runs, half = node.source(0), [], 1
    while half < node.ne[0]:
        for distance in (half >> i for i in range(half.bit_length())):
            n = -(-node.ne[0] // (2 * distance)) * distance * node.n_rows
            mirrored = distance == half
            runs.append((items(n), (descending, distance, int(mirrored))))
        half *= 2
    return [Launch("sort", "exchange", (a, node), groups, given) for groups, given in runs]

"""OpenCL launchers of the ops in ggml_py/ops/sort.py."""

from __future__ import annotations

from ggml_opencl.conditions import needs_type
from ggml_opencl.table import Launch, items, table
from ggml_py.tensor import Tensor

LONGEST_RANKED = 1 << 12  # elements of a row in which each one is compared with all others


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
    """Return launches of Batcher's bitonic merge sort of rows' indices, all in one direction.

    The first exchanges of a merge mirror the second half; what lies past a row's end stays there.
    """
    a, runs, half = node.source(0), [], 1
    while half < node.ne[0]:
        for distance in (half >> i for i in range(half.bit_length())):
            n = -(-node.ne[0] // (2 * distance)) * distance * node.n_rows
            mirrored = distance == half
            runs.append((items(n), (descending, distance, int(mirrored))))
        half *= 2
    return [Launch("sort", "exchange", (a, node), groups, given) for groups, given in runs]

"""OpenCL launchers of the ops in ggml_py/ops/reduce.py."""

from __future__ import annotations

from ggml_opencl.conditions import all_conditions, all_typed, needs_type
from ggml_opencl.table import Launch, table
from ggml_py.tensor import Tensor, shape4

F32 = all_typed((0, -1), "f32")


def by_row(kernel: str, node: Tensor, *scalars: float) -> list[Launch]:
    groups = (node.source(0).n_rows, 1, 1)
    return [Launch("reduce", kernel, (node.source(0), node), groups, scalars)]


@table.op("SUM_ROWS", F32)
def sum_rows(node: Tensor) -> list[Launch]:
    return by_row("sum_rows", node, 1.0)


@table.op("MEAN", F32)
def mean(node: Tensor) -> list[Launch]:
    return by_row("sum_rows", node, 1.0 / node.source(0).ne[0])


@table.op("SUM", F32)
def sum(node: Tensor) -> list[Launch]:
    return [Launch("reduce", "sum", (node.source(0), node), (1, 1, 1))]


@table.op("CUMSUM", F32)
def cumsum(node: Tensor) -> list[Launch]:
    a, dst = (along(t, node.param("axis")) for t in (node.source(0), node))
    return [Launch("reduce", "cumsum", (a, dst), (a.n_rows, 1, 1))]


def along(t: Tensor, axis: int) -> Tensor:
    """Return the same elements with this dimension as the first."""
    ne, nb = list(t.ne), list(t.nb)
    ne[0], ne[axis], nb[0], nb[axis] = ne[axis], ne[0], nb[axis], nb[0]
    turned = Tensor(t.type, tuple(ne), nb=shape4(nb))
    turned.buffer, turned.offset = t.buffer, t.offset
    return turned


@table.op("ARGMAX", all_conditions(needs_type(0, "f32"), needs_type(-1, "i32")))
def argmax(node: Tensor) -> list[Launch]:
    return by_row("argmax", node)

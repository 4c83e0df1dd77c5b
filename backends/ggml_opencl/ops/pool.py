"""OpenCL launchers of the ops in ggml_py/ops/pool.py."""

from __future__ import annotations

from ggml_opencl.conditions import FLOATS, all_conditions, needs_type
from ggml_opencl.table import Launch, items, table
from ggml_py.ops.pool import POOL
from ggml_py.tensor import Tensor

FROM_FLOATS = all_conditions(needs_type(0, *FLOATS), needs_type(-1, "f32"))


def _pool(node: Tensor, *scalars: int) -> list[Launch]:
    mean, n = int(node.param("kind") == POOL["avg"]), items(node.n_elements)
    return [Launch("pool", "pool", (node.source(0), node), n, (mean, *scalars))]


@table.op("POOL_1D", FROM_FLOATS)
def pool_1d(node: Tensor) -> list[Launch]:
    k, s, p = (node.param(name) for name in ("k0", "s0", "p0"))
    return _pool(node, k, 1, s, 1, p, 0, 0)


@table.op("POOL_2D", FROM_FLOATS)
def pool_2d(node: Tensor) -> list[Launch]:
    return _pool(node, *(node.param(name + i) for name in "ksp" for i in "01"), 1)

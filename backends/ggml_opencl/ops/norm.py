"""OpenCL launchers of the ops in ggml_py/ops/norm.py."""

from __future__ import annotations

from ggml_opencl.conditions import all_conditions, all_typed, dense_rows
from ggml_opencl.table import Launch, table
from ggml_py.tensor import Tensor


def _by_row(op: str, *dense: int) -> None:
    @table.op(op, all_conditions(all_typed((0, -1), "f32"), dense_rows(*dense)))
    def launch(node: Tensor) -> list[Launch]:
        groups, eps = (node.n_rows, 1, 1), float(node.param("eps"))
        return [Launch("norm", op.lower(), (node.source(0), node), groups, (eps,))]


_by_row("RMS_NORM", 0, -1)
_by_row("NORM", -1)
_by_row("L2_NORM", -1)


@table.op("GROUP_NORM", all_typed((0, -1), "f32"))
def group_norm(node: Tensor) -> list[Launch]:
    channels = node.ne[2]
    size = -(-channels // node.param("n_groups"))
    groups = (-(-channels // size), node.ne[3], 1)
    scalars = (size, float(node.param("eps")))
    return [Launch("norm", "group_norm", (node.source(0), node), groups, scalars)]

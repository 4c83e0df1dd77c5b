"""OpenCL launchers of the ops in ggml_py/ops/training.py. The builders check shapes and types."""

from __future__ import annotations

from ggml_opencl.conditions import all_conditions, all_typed, needs_type
from ggml_opencl.table import Launch, defines, items, table
from ggml_py.tensor import Tensor


def _launch(kernel: str, node: Tensor, groups: tuple[int, int, int], what: str) -> list[Launch]:
    return [Launch("training", kernel, (*node.sources(), node), groups, (), defines(**{what: 1}))]


@table.op("CROSS_ENTROPY_LOSS")
def cross_entropy_loss(node: Tensor) -> list[Launch]:
    return _launch("cross_entropy_loss", node, (1, 1, 1), "LOSSES")


@table.op("CROSS_ENTROPY_LOSS_BACK")
def cross_entropy_loss_back(node: Tensor) -> list[Launch]:
    return _launch("cross_entropy_loss_back", node, (node.n_rows, 1, 1), "LOSSES")


@table.op("COUNT_EQUAL", all_conditions(all_typed((0, 1), "i32"), needs_type(-1, "i64")))
def count_equal(node: Tensor) -> list[Launch]:
    tensors, given = (*node.sources(), node), defines(COUNTS=1)
    return [Launch("training", "count_equal", tensors, (1, 1, 1), (), given)]


@table.op("OPT_STEP_ADAMW")
def opt_step_adamw(node: Tensor) -> list[Launch]:
    return _launch("opt_step_adamw", node, items(node.n_elements), "STEPS")


@table.op("OPT_STEP_SGD")
def opt_step_sgd(node: Tensor) -> list[Launch]:
    return _launch("opt_step_sgd", node, items(node.n_elements), "STEPS")

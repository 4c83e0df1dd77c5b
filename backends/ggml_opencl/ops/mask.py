"""OpenCL launchers of the ops in ggml_py/ops/mask.py."""

from __future__ import annotations

import math

from ggml_opencl.conditions import FLOATS, all_typed, needs_type
from ggml_opencl.table import Launch, items, table
from ggml_py.tensor import Tensor


@table.op("TRI", all_typed((0, -1), "f32"))
def tri(node: Tensor) -> list[Launch]:
    n = items(node.n_elements)
    return [Launch("mask", "tri", (node.source(0), node), n, (node.param("kind"),))]


@table.op("FILL", needs_type(-1, *FLOATS))
def fill(node: Tensor) -> list[Launch]:
    # tri and diag_mask, in the same file, name a second type.
    types = (node.type.name, node.type.name)
    value = float(node.param("value"))
    return [Launch("mask", "fill", (node,), items(node.n_elements), (value,), types=types)]


def _diag_mask(node: Tensor, masked: float) -> list[Launch]:
    n, scalars = items(node.n_elements), (node.param("n_past"), masked)
    return [Launch("mask", "diag_mask", (node.source(0), node), n, scalars)]


@table.op("DIAG_MASK_INF", all_typed((0, -1), "f32"))
def diag_mask_inf(node: Tensor) -> list[Launch]:
    return _diag_mask(node, -math.inf)


@table.op("DIAG_MASK_ZERO", all_typed((0, -1), "f32"))
def diag_mask_zero(node: Tensor) -> list[Launch]:
    return _diag_mask(node, 0.0)

"""Launchers of ggml_py/ops/mask.py."""

from __future__ import annotations

from ggml_opencl.conditions import FLOATS, all_typed, typed
from ggml_opencl.table import Launch, items, table
from ggml_py.tensor import Tensor


@table.op("TRI", all_typed((0, -1), "f32"))
def tri(node: Tensor) -> list[Launch]:
    n = items(node.n_elements)
    return [Launch("mask", "tri", (node.src[0], node), n, (node.param("kind"),))]


@table.op("FILL", typed(-1, *FLOATS))
def fill(node: Tensor) -> list[Launch]:
    # tri and diag_mask_inf, in the same file, name a second type.
    types = (node.type.name, node.type.name)
    value = float(node.param("value"))
    return [Launch("mask", "fill", (node,), items(node.n_elements), (value,), types=types)]


@table.op("DIAG_MASK_INF", all_typed((0, -1), "f32"))
def diag_mask_inf(node: Tensor) -> list[Launch]:
    n = items(node.n_elements)
    return [Launch("mask", "diag_mask_inf", (node.src[0], node), n, (node.param("n_past"),))]

"""Launchers of ggml_py/ops/wrap.py."""

from __future__ import annotations

from ggml_opencl.conditions import READABLE, all_typed
from ggml_opencl.table import Launch, items, table
from ggml_py.tensor import Tensor


@table.op("ROLL", all_typed((0, -1), *READABLE))
def roll(node: Tensor) -> list[Launch]:
    shifts = tuple(node.param(f"shift{i}") for i in range(4))
    return [Launch("wrap", "roll", (node.src[0], node), items(node.n_elements), shifts)]


@table.op("PAD_REFLECT_1D", all_typed((0, -1), *READABLE))
def pad_reflect_1d(node: Tensor) -> list[Launch]:
    n, scalars = items(node.n_elements), (node.param("p0"),)
    return [Launch("wrap", "pad_reflect_1d", (node.src[0], node), n, scalars)]

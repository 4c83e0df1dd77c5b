"""OpenCL launchers of the ops in ggml_py/ops/window.py."""

from __future__ import annotations

from ggml_opencl.conditions import FLOATS, all_typed
from ggml_opencl.table import Launch, defines, items, table
from ggml_py.tensor import Tensor

WINDOWS = defines(WINDOWS=1)
CONVERTED = all_typed((0, -1), *FLOATS)


def _windows(kernel: str, node: Tensor, *scalars: int) -> list[Launch]:
    n = items(node.n_elements)
    return [Launch("window", kernel, (node.source(0), node), n, scalars, WINDOWS)]


@table.op("WIN_PART", CONVERTED)
def win_part(node: Tensor) -> list[Launch]:
    return _windows("win_part", node, node.param("npx"))


@table.op("WIN_UNPART", CONVERTED)
def win_unpart(node: Tensor) -> list[Launch]:
    return _windows("win_unpart", node, -(-node.ne[1] // node.param("w")))


@table.op("GET_REL_POS", CONVERTED)
def get_rel_pos(node: Tensor) -> list[Launch]:
    return _windows("get_rel_pos", node)


@table.op("ADD_REL_POS", all_typed((*range(3), -1), *FLOATS))
def add_rel_pos(node: Tensor) -> list[Launch]:
    n, given = items(node.n_elements), defines(POSITIONS=1)
    return [Launch("window", "add_rel_pos", (*node.sources(), node), n, (), given)]

"""Launchers of ggml_py/ops/delta_net.py."""

from __future__ import annotations

from ggml_opencl.conditions import all_typed, every
from ggml_opencl.ops._states import LARGEST_STATE, behind_outputs, small_state
from ggml_opencl.table import WG, Launch, defines, table
from ggml_py.ops.delta_net import REPEAT
from ggml_py.tensor import Tensor


def small_heads(node: Tensor) -> str:
    size = node.source(2).ne[0]
    return "" if size <= LARGEST_STATE else small_state(size, "row")


@table.op("GATED_DELTA_NET", every(all_typed((*range(6), -1), "f32"), small_heads))
def gated_delta_net(node: Tensor) -> list[Launch]:
    v, n_snapshots = node.source(2), int(node.param("n_snapshots"))
    size, n_head, _, n_seqs = v.ne
    kept = behind_outputs(node, v.n_elements, size * size * n_head, n_seqs, n_snapshots)
    return gated_delta_net_to(node, kept)


def gated_delta_net_to(node: Tensor, kept: Tensor) -> list[Launch]:
    """The states go to `kept` [S * S * H, B, n_snapshots or fewer]."""
    v, g = node.source(2), node.source(3)
    size, n_head, _, n_seqs = v.ne
    groups = (-(-size // WG), n_head, n_seqs)
    scalars = (node.param("n_snapshots"),)
    given = defines(GATED=1, S=size, GATES=g.ne[0])
    tensors = (*node.sources(), node, kept)
    return [Launch("delta_net", "gated_delta_net", tensors, groups, scalars, given)]


@table.op("DELTA_NET", every(all_typed((*range(7), -1), "f32"), small_heads))
def delta_net(node: Tensor) -> list[Launch]:
    size, _, n_head, n_seqs = node.source(2).ne
    saved = node.optional(6)
    tensors = (*node.sources(6), node if saved is None else saved, node)
    scalars = (int(node.param("repeat") == REPEAT["groups"]),)
    given = defines(UNGATED=1, S=size, GATES=node.source(3).ne[1], SAVES=int(saved is not None))
    groups = (-(-size // WG), n_head, n_seqs)
    return [Launch("delta_net", "delta_net", tensors, groups, scalars, given)]

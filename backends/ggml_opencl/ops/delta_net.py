"""OpenCL launchers of the ops in ggml_py/ops/delta_net.py."""

from __future__ import annotations

from ggml_opencl.conditions import all_conditions, all_typed
from ggml_opencl.ops._states import LARGEST_STATE, small_state, view_new_states, view_states
from ggml_opencl.table import WG, Launch, defines, table
from ggml_py.ops.delta_net import REPEAT
from ggml_py.tensor import Tensor


def small_heads(node: Tensor) -> str:
    size = node.source(2).ne[0]
    return "" if size <= LARGEST_STATE else small_state(size, "row")


@table.op("GATED_DELTA_NET", all_conditions(all_typed((*range(6), -1), "f32"), small_heads))
def gated_delta_net(node: Tensor) -> list[Launch]:
    v, n_snapshots = node.source(2), int(node.param("n_snapshots"))
    size, n_head, _, n_seqs = v.ne
    kept = view_new_states(node, v.n_elements, size * size * n_head, n_seqs, n_snapshots)
    return store_gated_delta_net(node, kept)


def store_gated_delta_net(
    node: Tensor, kept: Tensor, cache: Tensor | None = None, ids: Tensor | None = None
) -> list[Launch]:
    """Return launches that put the states into `kept` [S * S * H, B, n_snapshots or fewer] and take
    them from rows `ids` of a cache, if there is one."""
    *sources, state = node.sources()
    v, g = sources[2:4]
    size, n_head, _, n_seqs = v.ne
    groups = (-(-size // WG), n_head, n_seqs)
    scalars = (node.param("n_snapshots"),)
    given = defines(GATED=1, S=size, GATES=g.ne[0], IN_ROWS=int(ids is not None))
    tensors = (*sources, state, node, kept)
    if cache is None or ids is None:
        return [Launch("delta_net", "gated_delta_net", tensors, groups, scalars, given)]
    tensors = (*sources, view_states(cache, size, size, n_head), node, kept, ids)
    return [Launch("delta_net", "gated_delta_net", tensors, groups, scalars, given, checked=True)]


@table.op("DELTA_NET", all_conditions(all_typed((*range(7), -1), "f32"), small_heads))
def delta_net(node: Tensor) -> list[Launch]:
    size, _, n_head, n_seqs = node.source(2).ne
    saved = node.optional(6)
    tensors = (*node.sources(6), node if saved is None else saved, node)
    scalars = (int(node.param("repeat") == REPEAT["groups"]),)
    given = defines(UNGATED=1, S=size, GATES=node.source(3).ne[1], SAVES=int(saved is not None))
    groups = (-(-size // WG), n_head, n_seqs)
    return [Launch("delta_net", "delta_net", tensors, groups, scalars, given)]

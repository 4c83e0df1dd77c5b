"""OpenCL launchers of the ops in ggml_py/ops/linear_attention.py."""

from __future__ import annotations

from ggml_opencl.conditions import all_conditions, all_typed
from ggml_opencl.ops._states import LARGEST_STATE, small_state, view_new_states
from ggml_opencl.table import WG, Launch, defines, table
from ggml_py.tensor import Tensor


def small_heads(node: Tensor) -> str:
    size = node.source(0).ne[0]
    return "" if size <= LARGEST_STATE else small_state(size, "row")


SMALL_F32 = all_conditions(all_typed((*range(7), -1), "f32"), small_heads)


@table.op("RWKV_WKV6", SMALL_F32)
@table.op("RWKV_WKV7", SMALL_F32)
@table.op("GATED_LINEAR_ATTN", SMALL_F32)
def linear_attention(node: Tensor) -> list[Launch]:
    k, n_states = node.source(0), 1 + int(node.param("n_earlier"))
    n_seqs = node.sources()[-1].ne[1]
    size = k.ne[0] * k.ne[0] * k.ne[1]
    return store_linear_attention(node, view_new_states(node, k.n_elements, size, n_seqs, n_states))


def store_linear_attention(node: Tensor, kept: Tensor) -> list[Launch]:
    """Return launches that put the states into `kept` [S * S * H, n_seqs, n_snapshots or fewer]."""
    size, n_head = node.source(0).ne[:2]
    groups = (-(-size // WG), n_head, node.sources()[-1].ne[1])
    scalars: tuple[float, ...] = (1 + int(node.param("n_earlier")),)
    if node.op == "GATED_LINEAR_ATTN":
        scalars = (*scalars, float(node.param("scale")))
    given, tensors = defines(**{node.op: 1}, S=size), (*node.sources(), node, kept)
    return [Launch("linear_attention", node.op.lower(), tensors, groups, scalars, given)]

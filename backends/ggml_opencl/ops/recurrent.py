"""Launchers of ggml_py/ops/recurrent.py."""

from __future__ import annotations

from ggml_opencl.conditions import all_typed, every, typed
from ggml_opencl.table import WG, Launch, defines, items, table
from ggml_py.tensor import Tensor

LARGEST_STATE = 256  # values that an item keeps


@table.op("SSM_CONV", all_typed((0, 1, -1), "f32"))
def ssm_conv(node: Tensor) -> list[Launch]:
    tensors, n = (*node.src, node), items(node.n_elements)
    return [Launch("recurrent", "ssm_conv", tensors, n, (), defines(CONVOLUTION=1))]


def small_state(index: int, what: str) -> str:
    return f"needs states of at most {LARGEST_STATE} per {what}; got {index}"


def scannable(node: Tensor) -> str:
    n = node.src[0].ne[0]
    return "" if n <= LARGEST_STATE else small_state(n, "channel")


@table.op("SSM_SCAN", every(all_typed((*range(6), -1), "f32"), typed(6, "i32"), scannable))
def ssm_scan(node: Tensor) -> list[Launch]:
    s, x = node.src[:2]
    groups = (-(-x.ne[0] // WG), x.ne[1], x.ne[3])
    scalars = (node.param("n_snapshots"),)
    given = defines(SCAN=1, N=s.ne[0])
    return [Launch("recurrent", "ssm_scan", (*node.src, node), groups, scalars, given)]


def small_heads(node: Tensor) -> str:
    size = node.src[2].ne[0]
    return "" if size <= LARGEST_STATE else small_state(size, "row")


@table.op("GATED_DELTA_NET", every(all_typed((*range(6), -1), "f32"), small_heads))
def gated_delta_net(node: Tensor) -> list[Launch]:
    v, g = node.src[2], node.src[3]
    size, n_head, _, n_seqs = v.ne
    groups = (-(-size // WG), n_head, n_seqs)
    scalars = (node.param("n_snapshots"),)
    given = defines(DELTA_NET=1, S=size, GATES=g.ne[0])
    return [Launch("recurrent", "gated_delta_net", (*node.src, node), groups, scalars, given)]

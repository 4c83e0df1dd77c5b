"""OpenCL launchers of the ops in ggml_py/ops/ssm.py."""

from __future__ import annotations

from ggml_opencl.conditions import all_conditions, all_typed, needs_type
from ggml_opencl.ops._states import LARGEST_STATE, small_state, view_new_states
from ggml_opencl.table import WG, Launch, defines, items, table
from ggml_py.tensor import Tensor


@table.op("SSM_CONV", all_typed((0, 1, -1), "f32"))
def ssm_conv(node: Tensor) -> list[Launch]:
    tensors, n = (*node.sources(), node), items(node.n_elements)
    return [Launch("ssm", "ssm_conv", tensors, n, (), defines(CONVOLUTION=1))]


@table.op("SSM_CONV_SEQ", all_conditions(all_typed((0, 1, 2, 4, -1), "f32"), needs_type(3, "i32")))
def ssm_conv_seq(node: Tensor) -> list[Launch]:
    _, x, w = node.sources(3)
    saved = node.optional(4)
    tensors = (*node.sources(4), node if saved is None else saved, node)
    given = defines(SEQUENCES=1, D=w.ne[0], SAVES=int(saved is not None))
    return [Launch("ssm", "ssm_conv_seq", tensors, items(x.ne[0]), (), given, checked=True)]


def scannable(node: Tensor) -> str:
    n = node.source(0).ne[0]
    return "" if n <= LARGEST_STATE else small_state(n, "channel")


@table.op(
    "SSM_SCAN", all_conditions(all_typed((*range(6), -1), "f32"), needs_type(6, "i32"), scannable)
)
def ssm_scan(node: Tensor) -> list[Launch]:
    s, x, n_snapshots = node.source(0), node.source(1), int(node.param("n_snapshots"))
    size = s.ne[0] * s.ne[1] * s.ne[2]
    return store_ssm_scan(node, view_new_states(node, x.n_elements, size, x.ne[3], n_snapshots))


def store_ssm_scan(node: Tensor, kept: Tensor) -> list[Launch]:
    """Return launches that put the states into `kept` [N * dim * H, B, n_snapshots or fewer]."""
    s, x = node.sources(2)
    groups = (-(-x.ne[0] // WG), x.ne[1], x.ne[3])
    scalars = (node.param("n_snapshots"),)
    given = defines(SCAN=1, N=s.ne[0])
    tensors = (*node.sources(), node, kept)
    return [Launch("ssm", "ssm_scan", tensors, groups, scalars, given, checked=True)]

"""Launchers of ggml_py/ops/linear_attention.py."""

from __future__ import annotations

from ggml_opencl.conditions import all_typed, every
from ggml_opencl.ops._states import LARGEST_STATE, behind_outputs, small_state
from ggml_opencl.table import WG, Launch, defines, table
from ggml_py.tensor import Tensor


def small_heads(node: Tensor) -> str:
    size = node.source(0).ne[0]
    return "" if size <= LARGEST_STATE else small_state(size, "row")


SMALL_F32 = every(all_typed((*range(7), -1), "f32"), small_heads)


def _launch(
    kernel: str, node: Tensor, variant: str, *scalars: float, more: tuple[Tensor, ...] = ()
) -> list[Launch]:
    size, n_head = node.source(0).ne[:2]
    groups = (-(-size // WG), n_head, node.sources()[-1].ne[1])
    given = defines(**{variant: 1}, S=size)
    tensors = (*node.sources(), node, *more)
    return [Launch("linear_attention", kernel, tensors, groups, scalars, given)]


@table.op("RWKV_WKV6", SMALL_F32)
def rwkv_wkv6(node: Tensor) -> list[Launch]:
    k, n_states = node.source(0), 1 + int(node.param("n_earlier"))
    n_seqs = node.source(5).ne[1]
    size = k.ne[0] * k.ne[0] * k.ne[1]
    return rwkv_wkv6_to(node, behind_outputs(node, k.n_elements, size, n_seqs, n_states))


def rwkv_wkv6_to(node: Tensor, kept: Tensor) -> list[Launch]:
    """The states go to `kept` [S * S * H, n_seqs, n_snapshots or fewer]."""
    n_snapshots = 1 + int(node.param("n_earlier"))
    return _launch("rwkv_wkv6", node, "RWKV6", n_snapshots, more=(kept,))


@table.op("RWKV_WKV7", SMALL_F32)
def rwkv_wkv7(node: Tensor) -> list[Launch]:
    return _launch("rwkv_wkv7", node, "RWKV7")


@table.op("GATED_LINEAR_ATTN", SMALL_F32)
def gated_linear_attn(node: Tensor) -> list[Launch]:
    return _launch("gated_linear_attn", node, "GATED", float(node.param("scale")))

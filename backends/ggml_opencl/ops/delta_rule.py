"""Launcher of ggml_py/ops/delta_rule.py."""

from __future__ import annotations

from ggml_opencl.conditions import all_typed, every
from ggml_opencl.ops.recurrent import small_heads
from ggml_opencl.table import WG, Launch, defines, sources, table
from ggml_py.ops.delta_rule import REPEAT
from ggml_py.tensor import Tensor


@table.op("DELTA_NET", every(all_typed((*range(7), -1), "f32"), small_heads))
def delta_net(node: Tensor) -> list[Launch]:
    size, _, n_head, n_seqs = node.src[2].ne
    saved = sources(node, 7)[6]
    tensors = (*node.src[:6], node if saved is None else saved, node)
    scalars = (int(node.param("repeat") == REPEAT["groups"]),)
    given = defines(S=size, GATES=node.src[3].ne[1], SAVES=int(saved is not None))
    groups = (-(-size // WG), n_head, n_seqs)
    return [Launch("delta_rule", "delta_net", tensors, groups, scalars, given)]

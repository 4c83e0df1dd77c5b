"""Launcher of ggml_py/ops/conv_state.py."""

from __future__ import annotations

from ggml_opencl.conditions import all_typed, every, typed
from ggml_opencl.table import Launch, defines, items, sources, table
from ggml_py.tensor import Tensor


@table.op("SSM_CONV_SEQ", every(all_typed((0, 1, 2, 4, -1), "f32"), typed(3, "i32")))
def ssm_conv_seq(node: Tensor) -> list[Launch]:
    _, x, w = node.src[:3]
    saved = sources(node, 5)[4]
    tensors = (*node.src[:4], node if saved is None else saved, node)
    given = defines(D=w.ne[0], SAVES=int(saved is not None))
    return [Launch("conv_state", "ssm_conv_seq", tensors, items(x.ne[0]), (), given)]

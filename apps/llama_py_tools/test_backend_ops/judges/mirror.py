"""Conversion of a node to ggml's struct: op, parameters, and addresses of its tensors.

The code is independent of the op: parameters have ggml's layout, and sources ggml's order.
"""

from __future__ import annotations

import ctypes

from ggml_py.backend import HostBuffer
from ggml_py.opspec import OP_PARAMS_SIZE, OPS
from ggml_py.tensor import Tensor
from llama_py_tools.test_backend_ops.judges.libggml import Ggml, GgmlTensor


class Mirror:
    """A node with all sources as leaves. Keep it alive while ggml has the address."""

    def __init__(self, ggml: Ggml, node: Tensor) -> None:
        self.struct = _leaf(node)
        self.struct.op = ggml.ops[node.op]
        params = (ctypes.c_char * OP_PARAMS_SIZE).from_buffer(self.struct.op_params)
        params.raw = node.op_params()
        self.sources = [None if s is None else _leaf(s) for s in node.src]
        for i, source in enumerate(self.sources):
            self.struct.src[i] = None if source is None else ctypes.addressof(source)

    @property
    def address(self) -> int:
        return ctypes.addressof(self.struct)


def _leaf(t: Tensor) -> GgmlTensor:
    struct = GgmlTensor(type=t.type.id, ne=t.ne, nb=t.nb, name=t.name.encode())
    if isinstance(t.buffer, HostBuffer):
        struct.data = t.buffer.base + t.offset
    return struct


def why_no_mirror(ggml: Ggml, node: Tensor) -> str:
    """Return the reason why ggml has no such node; "" if it has."""
    if node.op not in ggml.ops:
        return f"it does not have op {node.op}"
    for t in (node, *node.src):
        if t is not None and ggml.type_name(t.type.id) != t.type.name:
            return f"it does not have type {t.type}"
    if "of" in OPS[node.op].fields and node.param("of"):
        return f"it does not have {node.op} with a subset of the matrices"
    return ""

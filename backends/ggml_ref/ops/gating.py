"""Reference of ggml_py/ops/gating.py."""

from __future__ import annotations

import numpy as np

from ggml_py.ops.gating import KINDS
from ggml_py.tensor import Tensor
from ggml_ref.ops.elementwise import gelu, relu, sigmoid, silu
from ggml_ref.table import table
from ggml_ref.values import Values

FUNCTIONS = {
    KINDS["relu"]: relu,
    KINDS["sigmoid"]: sigmoid,
    KINDS["gelu"]: gelu,
    KINDS["silu"]: silu,
}


@table.op("FUSED_MUL_UNARY")
def fused_mul_unary(node: Tensor, a: Values, b: Values) -> Values:
    gate, limit = FUNCTIONS[node.param("kind")](a), node.param("limit")
    if limit > 0:
        gate, b = np.minimum(gate, limit), np.clip(b, -limit, limit)
    return gate * b

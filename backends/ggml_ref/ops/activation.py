"""References of ggml_py/ops/activation.py."""

from __future__ import annotations

import numpy as np

from ggml_py.tensor import Tensor
from ggml_ref.ops.elementwise import gate_and_value, silu
from ggml_ref.table import table
from ggml_ref.values import Values


@table.op("LEAKY_RELU")
def leaky_relu(node: Tensor, a: Values) -> Values:
    return np.where(a > 0, a, node.param("slope") * a)


@table.op("XIELU")
def xielu(node: Tensor, a: Values) -> Values:
    positive = node.param("alpha_p") * a * a
    negative = node.param("alpha_n") * (np.expm1(np.minimum(a, node.param("eps"))) - a)
    return np.where(a > 0, positive, negative) + node.param("beta") * a


@table.op("SWIGLU_CLAMP")
def swiglu_clamp(node: Tensor, a: Values, b: Values | None) -> Values:
    limit = node.param("limit")
    gate, value = gate_and_value(node, a, b)
    return silu(np.minimum(gate, limit)) * np.clip(value, -limit, limit)

"""NumPy references of the ops in ggml_py/ops/arithmetic.py."""

from __future__ import annotations

from ggml_py.tensor import Tensor
from ggml_ref.functions import maximum, minimum
from ggml_ref.indices import check_indices
from ggml_ref.ops._shapes import tile
from ggml_ref.table import table
from ggml_ref.values import Integers, Values


@table.op("ADD")
def add(node: Tensor, a: Values, b: Values) -> Values:
    return a + tile(b, a.shape)


@table.op("SUB")
def sub(node: Tensor, a: Values, b: Values) -> Values:
    return a - tile(b, a.shape)


@table.op("MUL")
def mul(node: Tensor, a: Values, b: Values) -> Values:
    return a * tile(b, a.shape)


@table.op("DIV")
def div(node: Tensor, a: Values, b: Values) -> Values:
    return a / tile(b, a.shape)


@table.op("ADD_ID")
def add_id(node: Tensor, a: Values, b: Values, ids: Integers) -> Values:
    rows: Values = b[0, 0][check_indices(node, ids[0, 0], b.shape[2])]
    return a + rows


@table.op("SCALE")
def scale(node: Tensor, a: Values) -> Values:
    return a * float(node.param("scale")) + float(node.param("bias"))


@table.op("CLAMP")
def clamp(node: Tensor, a: Values) -> Values:
    return minimum(maximum(a, node.param("min")), node.param("max"))


@table.op("ADD1")
def add1(node: Tensor, a: Values, b: Values) -> Values:
    return a + b.ravel()

"""Matmuls of few columns fused with their readers: rows of a cache, a GLU."""

from __future__ import annotations

from ggml_opencl.conditions import float_rows
from ggml_opencl.ops.matrix import ROWS, is_of_columns, of_columns
from ggml_opencl.table import Launch, defines, fuse
from ggml_py.fusion import f32_rows
from ggml_py.fusion.pattern import Match
from ggml_py.ops.glu import KINDS
from ggml_py.patterns.glu import PRODUCTS, of_products
from ggml_py.patterns.matrix import MUL_MAT_TO_ROWS
from ggml_py.tensor import Tensor

UNITS = {"REGLU": "relu", "GEGLU": "gelu", "SWIGLU": "silu"}


def few_columns(product: Tensor) -> str:
    return "" if is_of_columns(product) else f"needs few columns; got {product}"


def plain_rows(m: Match) -> str:
    return float_rows(m["kept"]) or few_columns(m["product"])


@fuse(MUL_MAT_TO_ROWS, when=plain_rows)
def mul_mat_to_rows(m: Match) -> list[Launch]:
    tensors, given = (m["weight"], m["x"], m["kept"], m["ids"]), defines(TO_ROWS=1)
    n, kernel = of_columns(m["product"]), "mul_mat_to_rows"
    return [Launch("fused/matrix", kernel, tensors, n, (), given, checked=True)]


def alike(m: Match) -> str:
    """Return why the matmuls differ in type, or from the result's layout, or ""."""
    gate, value, y = m["gate"], m["value"], m["y"]
    if m["weight"].type is not m["other"].type or m["weight"].ne != m["other"].ne:
        return f"needs weights of one type and shape; got {m['other']}"
    if not (gate.same_layout(y) and value.same_layout(y)):
        return f"needs values in the layout of the gate; got {value}"
    return few_columns(gate) or f32_rows("y")(m)


def _gated_unit(op: str, unit: str, kind: int) -> None:
    @fuse(of_products(op, unit), when=alike)
    def gated_unit(m: Match) -> list[Launch]:
        chosen = (m["ids"],) if op == "MUL_MAT_ID" else ()
        tensors = (m["weight"], m["x"], m["y"], m["other"], *chosen)
        kernel, groups = f"{op.lower()}_gated", of_columns(m["gate"], ROWS // 2)
        given, checked = defines(GATED=1), bool(chosen)
        return [Launch("fused/matrix", kernel, tensors, groups, (kind,), given, checked=checked)]


for _op in PRODUCTS:
    for _unit, _gate in UNITS.items():
        _gated_unit(_op, _unit, KINDS[_gate])

"""GLU fused into the gate's matmul, for repacked weights and several columns.

The matmul kernel applies the GLU (kernels/matrix/_gates.py). If the value is also a matmul of the
same columns, the columns are packed once for both matmuls, before either writes. The result may
then overwrite the columns.
"""

from __future__ import annotations

import struct

from ggml_cpu.fused.product import OPERAND, is_prepared
from ggml_cpu.fusion import fuse
from ggml_cpu.kernels.glu import OF_PRODUCTS
from ggml_cpu.kernels.matrix import mul_mat, mul_mat_id
from ggml_cpu.kernels.matrix._ways import GATING
from ggml_cpu.step import Step
from ggml_cpu.table import table
from ggml_py.fusion import in_place
from ggml_py.fusion.pattern import Match
from ggml_py.patterns.glu import PRODUCTS, gate_product, of_products
from ggml_py.tensor import Tensor
from ggml_py.types import F32

VALUES = {"MUL_MAT": mul_mat.VALUE, "MUL_MAT_ID": mul_mat_id.VALUE}  # operand index of the value


def is_gating(gate: Tensor) -> bool:
    """Return True for a matmul with repacked weights and several columns."""
    return table().find(gate) in GATING


def is_gating_and_prepared(gate: Tensor) -> bool:
    return is_prepared(gate) and is_gating(gate)


def in_panels(m: Match) -> str:
    gate, value, y = m["gate"], m["value"], m["y"]
    alike = gate.same_layout(y) and value.same_layout(y) and y.is_contiguous()
    dense = alike and y.type is F32 is value.type
    return "" if dense else f"needs dense values of f32; got {value}"


def prepared_alike(m: Match) -> str:
    """Return why both matmuls cannot share packed columns, or ""."""
    gate, value = m["gate"], m["value"]
    if reason := in_panels(m):
        return reason
    one, other = table().get(gate), table().find(value)
    if other not in GATING:
        return f"needs repacked weights and several columns; got {value}"
    alike = one.prepare == other.prepare and one.scratch(gate, 1)[0] == other.scratch(value, 1)[0]
    return "" if alike else f"needs gate and value with equal packing; got {gate} and {value}"


def glu_step(m: Match, op: str, value: Tensor, number: int, ready: tuple[int, ...] = ()) -> Step:
    """Return the step of the matmul that applies GLU number `number` (kernels/glu.py)."""
    gate = m["gate"]
    operands = (m["y"], *gate.sources(VALUES[op] - 1), value)
    return Step(table().get(gate), gate, operands, unit=struct.pack("=i", number), ready=ready)


def _fuse(op: str, number: int, unit: str) -> None:
    @fuse(gate_product(op, unit), first=is_gating, when=in_panels, over=in_place("value"))
    def gated_unit(m: Match) -> list[Step]:
        return [glu_step(m, op, m["value"], number)]


def _fuse_both(number: int, unit: str) -> None:
    @fuse(
        of_products("MUL_MAT", unit),
        first=is_gating_and_prepared,
        when=prepared_alike,
        spent=lambda m: (m["x"],),
    )
    def gated_product(m: Match) -> list[Step]:
        value, y = m["value"], m["y"]
        operands = (y, *value.sources(VALUES["MUL_MAT"] - 1))
        product = Step(table().get(value), value, operands)
        return [product, glu_step(m, "MUL_MAT", y, number, (OPERAND,))]


for _number, _unit in enumerate(OF_PRODUCTS, 1):
    _fuse_both(_number, _unit)
    for _op in PRODUCTS:
        _fuse(_op, _number, _unit)

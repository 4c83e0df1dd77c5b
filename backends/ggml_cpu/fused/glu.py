"""A gated unit whose gate is a product of repacked weights and several columns: the product applies
it itself (kernels/matrix/_gates.py)."""

from __future__ import annotations

import struct

from ggml_cpu.fusion import fuse
from ggml_cpu.kernels.glu import OF_PRODUCTS
from ggml_cpu.kernels.matrix import mul_mat, mul_mat_id
from ggml_cpu.kernels.matrix._gates import UNIT
from ggml_cpu.kernels.matrix._ways import GATING
from ggml_cpu.step import Step
from ggml_cpu.table import table
from ggml_py.fusion import in_place
from ggml_py.pattern import Match
from ggml_py.patterns.glu import PRODUCTS, gated_by
from ggml_py.types import F32

VALUES = {"MUL_MAT": mul_mat.VALUE, "MUL_MAT_ID": mul_mat_id.VALUE}  # where the kernels expect them


def in_panels(m: Match) -> str:
    gate, value, y = m["gate"], m["value"], m["y"]
    if table().find(gate) not in GATING:
        return f"needs repacked weights and several columns; got {gate}"
    alike = gate.same_layout(y) and value.same_layout(y) and y.is_contiguous()
    dense = alike and y.type is F32 is value.type
    return "" if dense else f"needs dense values of f32; got {value}"


def _fuse(op: str, number: int, unit: str) -> None:
    @fuse(gated_by(op, unit), when=in_panels, over=in_place("value"))
    def gated_unit(m: Match) -> list[Step]:
        gate = m["gate"]
        operands = (m["y"], *gate.sources(VALUES[op] - 1), m["value"])
        params = bytearray(gate.op_params())
        struct.pack_into("=i", params, 4 * UNIT, number)
        return [Step(table().get(gate), gate, operands, bytes(params))]


for _op in PRODUCTS:
    for _number, _unit in enumerate(OF_PRODUCTS, 1):
        _fuse(_op, _number, _unit)

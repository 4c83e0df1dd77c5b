"""A gated unit whose gate is a product of repacked weights and several columns: what gates a tile
is in memory of its thread alone, and never that of the result. That is one tensor less of the
largest there are.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.fusion import fuse
from ggml_cpu.kernel import Function, Kernel, fn, kernel
from ggml_cpu.kernels._common import F32
from ggml_cpu.kernels._map import run_of_two
from ggml_cpu.kernels._register_products import register_product
from ggml_cpu.kernels.glu import geglu, swiglu
from ggml_cpu.kernels.matrix._ways import Way, plain_kernel, ways
from ggml_cpu.kernels.matrix.mul_mat import tiles_loop
from ggml_cpu.kernels.matrix.mul_mat_id import grouped_loop
from ggml_cpu.quants import weights
from ggml_cpu.step import Step
from ggml_cpu.table import table
from ggml_cpu.target import TILE
from ggml_py.fusion import in_place
from ggml_py.pattern import Match
from ggml_py.patterns.glu import PRODUCTS, gated_by
from ggml_py.tensor import Tensor
from ggml_py.types import F32 as F32_TYPE

UNITS = {"SWIGLU": swiglu, "GEGLU": geglu}
LOOPS = {"MUL_MAT": tiles_loop, "MUL_MAT_ID": grouped_loop}
SOURCES = {"MUL_MAT": ("weight", "x", "value"), "MUL_MAT_ID": ("weight", "x", "ids", "value")}


def gated_product(way: Way, apply: Function) -> Function:
    """product, as _products.py:tiles_product makes it, of a gate, which takes one more argument:
    how many bytes behind the result the value lies."""
    run = run_of_two(apply, F32, F32)
    if way.weight.registers:
        return register_product(way.weight, run)
    product, rows, column_bytes = way.product, way.weight.rows, way.weight.activations.column_bytes
    gates_at = way.local_bytes(0)

    @fn
    def gated(w, w_stride, k, m, first, last, a, n, out, stride, order, local, beside):
        gates, apart = local + gates_at, 4 * rows * (last - first)
        for c in range(0, n, TILE):
            count = min(TILE, n - c)
            product(
                w, w_stride, k, m, first, last, a + c * column_bytes(k), count,
                gates - 4 * rows * first, apart, 0, local,
            )  # fmt: skip
            for t in range(count):
                column = v.ld_i32(order + 4 * (c + t)) if order != 0 else c + t
                y = out + column * stride + 4 * rows * first
                run(y, gates + t * apart, y + beside, min(m, last * rows) - first * rows, ())

    return gated


def _declare(op: str, unit: str, way: Way) -> Kernel:
    """The kernel of an op in a kind of unit: dst, weights, columns, ids if there are any, and
    values."""
    plain, rows, group_of = plain_kernel(op, way), way.weight.rows, way.group_of
    value = 1 + SOURCES[op].index("value")

    def scratch(node: Tensor, nth: int) -> tuple[int, int]:
        shared, local = plain.scratch(node, nth)
        gates = 0 if way.weight.registers else 4 * rows * TILE * group_of(node.source(0).ne[0])
        return shared, local + gates

    name = f"{plain.name}_{unit.lower()}"

    @kernel(scratch=scratch, prepare=plain.prepare, extra=plain.extra, name=name, made=True)
    def gated_panels():
        loop = LOOPS[op](way, gated_product(way, UNITS[unit]))

        def multiply(p, ith, nth):
            loop(p, ith, nth, (v.data(p, value) - v.data(p, 0),))

        return multiply

    return gated_panels


def _fuse(op: str, unit: str) -> None:
    kernels = {
        plain_kernel(op, way): _declare(op, unit, way)
        for weight in weights().values()
        for way in ways(weight)
        if way.layout
    }

    def in_panels(m: Match) -> str:
        gate, value, y = m["gate"], m["value"], m["y"]
        if table().find(gate) not in kernels:
            return f"needs repacked weights and several columns; got {gate}"
        alike = gate.same_layout(y) and value.same_layout(y) and y.is_contiguous()
        dense = alike and y.type is F32_TYPE is value.type
        return "" if dense else f"needs dense values of f32; got {value}"

    @fuse(gated_by(op, unit), when=in_panels, over=in_place("value"))
    def gated_unit(m: Match) -> list[Step]:
        operands = (m["y"], *(m[name] for name in SOURCES[op]))
        return [Step(kernels[table().get(m["gate"])], m["gate"], operands)]


for _op in PRODUCTS:
    for _unit in UNITS:
        _fuse(_op, _unit)

"""GLU ops: a function of one tensor (the gate) times another (the value)."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import Function, fn, kernel
from ggml_cpu.kernels._common import (
    F32,
    FLOATS,
    Element,
    dense_rows,
    require_all,
    row_address,
    row_repeated,
    types_are,
)
from ggml_cpu.kernels._map import map_pairs, no_params, run_of_two
from ggml_cpu.kernels.unary import gelu, gelu_erf, gelu_quick, relu, sigmoid, silu
from ggml_py.ops.glu import KINDS
from ggml_py.tensor import Tensor


@fn
def gate_and_value(p, r, size):
    """Return the addresses of row r of dst, of its gate and of its value.

    These are rows of src0 and src1. Without src1 they are the two halves of a row of src0, and the
    second half is the gate if `swapped`.
    """
    d, gate, half = row_address(p, 0, r), row_address(p, 1, r), v.ne(p, 0, 0) * size
    if v.data(p, 2) != 0:
        return d, gate, row_address(p, 2, r)
    if v.op_i32(p, 1) != 0:
        return d, gate + half, gate
    return d, gate, gate + half


def _glu(op: str, apply: Function, element: Element, params: Function = no_params) -> None:
    """Declare dst = apply(gate, value) for one float type."""
    pairs = map_pairs(apply, element, element, params, gate_and_value, repeated=0)
    name = f"{op.lower()}_{element.name}"

    @kernel(op, when=require_all(types_are(element.name, element.name), dense_rows), name=name)
    def glu(p, ith, nth):
        pairs(p, ith, nth)


@fn
def reglu(g, x):
    return relu(g) * x


@fn
def geglu(g, x):
    return gelu(g) * x


@fn
def swiglu(g, x):
    return silu(g) * x


@fn
def geglu_erf(g, x):
    return gelu_erf(g) * x


@fn
def geglu_quick(g, x):
    return gelu_quick(g) * x


@fn
def swiglu_oai(g, x, alpha, limit):
    g = v.vmin(g, limit)
    return g * v.vsigmoid(g * alpha) * (v.vmin(v.vmax(x, -limit), limit) + 1.0)


@fn
def swiglu_clamp(g, x, limit):
    return silu(v.vmin(g, limit)) * v.vmin(v.vmax(x, -limit), limit)


@fn
def alpha_and_limit(p):
    return v.op_f32(p, 2), v.op_f32(p, 3)


@fn
def limit_alone(p):
    return (v.op_f32(p, 3),)


for _e in FLOATS:
    for _op, _apply in (
        ("REGLU", reglu),
        ("GEGLU", geglu),
        ("SWIGLU", swiglu),
        ("GEGLU_ERF", geglu_erf),
        ("GEGLU_QUICK", geglu_quick),
    ):
        _glu(_op, _apply, _e)
    _glu("SWIGLU_OAI", swiglu_oai, _e, alpha_and_limit)
    _glu("SWIGLU_CLAMP", swiglu_clamp, _e, limit_alone)


OF_PRODUCTS = ("SWIGLU", "GEGLU")  # units fused into matmul kernels, numbered from 1
_swiglu_rows, _geglu_rows = run_of_two(swiglu, F32, F32), run_of_two(geglu, F32, F32)


@fn
def gate_rows(unit, d, gate, value, n):
    """Store the GLU number `unit` (see OF_PRODUCTS) of n f32 gates and values at d."""
    if unit == 1:
        _swiglu_rows(d, gate, value, n, ())
    else:
        _geglu_rows(d, gate, value, n, ())


@fn
def value_and_gate(p, r, size):
    """Return the addresses of row r of dst, of src1, and of its gate in src0.

    A row of src0 may have a single element, which gates the whole row.
    """
    return row_address(p, 0, r), row_address(p, 2, r), row_repeated(p, 1, r)


@fn
def second_param(p):
    return (v.op_f32(p, 1),)


def _mul_unary(kind: str, apply: Function) -> None:
    def of_kind(node: Tensor) -> str:
        return "" if node.param("kind") == KINDS[kind] else f"computes only {kind}"

    @fn
    def apply_gate(y, gate, limit):
        gate = apply(gate)
        if limit > 0.0:
            gate, y = v.vmin(gate, limit), v.vmax(v.vmin(y, limit), -limit)
        return gate * y

    pairs = map_pairs(apply_gate, F32, F32, second_param, value_and_gate, repeated=1)
    when = require_all(types_are("f32", "f32", "f32"), dense_rows, of_kind)

    @kernel("FUSED_MUL_UNARY", when=when, name=f"fused_mul_{kind}_f32")
    def fused_mul_unary(p, ith, nth):
        pairs(p, ith, nth)


for _kind, _of_gate in (("relu", relu), ("sigmoid", sigmoid), ("gelu", gelu), ("silu", silu)):
    _mul_unary(_kind, _of_gate)

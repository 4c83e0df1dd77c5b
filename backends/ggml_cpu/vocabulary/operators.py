"""Python's operators on vectors: `+ - * /`, `& | ^ ~ << >>`, comparisons (giving `i1` masks).

A scalar operand is broadcast. `>>` is logical (see `asr`). Integer comparisons are signed; float
comparisons are false for NaN, except `!=`. LLVM may contract `a * b + c` to an FMA.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from llvmlite import ir
from numba.core import types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin

from .vec import Vec, broadcast, common, constant, without_literal

Operator = Callable[..., object]  # a function of the module `operator`
CONTRACT = ("contract",)

INTEGER = {
    operator.add: "add",
    operator.sub: "sub",
    operator.mul: "mul",
    operator.and_: "and_",
    operator.or_: "or_",
    operator.xor: "xor",
    operator.lshift: "shl",
    operator.rshift: "lshr",
}
FLOAT = {operator.add: "fadd", operator.sub: "fsub", operator.mul: "fmul", operator.truediv: "fdiv"}
COMPARE = {
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
    operator.eq: "==",
    operator.ne: "!=",
}
IN_PLACE = {
    operator.iadd: operator.add,
    operator.isub: operator.sub,
    operator.imul: operator.mul,
    operator.itruediv: operator.truediv,
    operator.iand: operator.and_,
    operator.ior: operator.or_,
    operator.ixor: operator.xor,
    operator.ilshift: operator.lshift,
    operator.irshift: operator.rshift,
}


def _arithmetic(
    op: Operator, builder: ir.IRBuilder, x: ir.Value, y: ir.Value, vec: Vec
) -> ir.Value:
    if vec.is_float:
        return getattr(builder, FLOAT[op])(x, y, flags=CONTRACT)
    return getattr(builder, INTEGER[op])(x, y)


def _comparison(
    op: Operator, builder: ir.IRBuilder, x: ir.Value, y: ir.Value, vec: Vec
) -> ir.Value:
    if not vec.is_float:
        return builder.icmp_signed(COMPARE[op], x, y)
    if op is operator.ne:
        return builder.fcmp_unordered("!=", x, y)
    return builder.fcmp_ordered(COMPARE[op], x, y)


def _result(op: Operator, vec: Vec) -> Vec | None:
    if op in COMPARE:
        return vec.with_elem("i1")
    return vec if op in (FLOAT if vec.is_float else INTEGER) else None


def _register(function: Operator, op: Operator) -> None:
    """Register `function` (the operator `op` or its in-place variant) with Numba for vectors."""

    class Template(AbstractTemplate):
        key = function

        def generic(self, args, kws):
            vec = common(*args) if len(args) == 2 else None
            result = vec and _result(op, vec)
            return signature(result, *map(without_literal, args)) if result else None

    infer_global(function)(Template)
    emit = _comparison if op in COMPARE else _arithmetic

    def lower(context, builder, sig, args):
        vec = common(*sig.args)
        x, y = (broadcast(context, builder, a, k, vec) for a, k in zip(args, sig.args, strict=True))
        return emit(op, builder, x, y, vec)

    for left, right in ((Vec, Vec), (Vec, types.Number), (types.Number, Vec)):
        lower_builtin(function, left, right)(lower)


def _register_unary(
    function: Operator, emit: Callable[[ir.IRBuilder, ir.Value, Vec], ir.Value]
) -> None:
    class Template(AbstractTemplate):
        key = function

        def generic(self, args, kws):
            if len(args) == 1 and isinstance(args[0], Vec):
                return signature(args[0], args[0])
            return None

    infer_global(function)(Template)

    @lower_builtin(function, Vec)
    def lower(context, builder, sig, args):
        return emit(builder, args[0], sig.args[0])


def _negate(builder: ir.IRBuilder, x: ir.Value, vec: Vec) -> ir.Value:
    return builder.fneg(x) if vec.is_float else builder.sub(constant(vec.ir, 0), x)


def _invert(builder: ir.IRBuilder, x: ir.Value, vec: Vec) -> ir.Value:
    return builder.xor(x, constant(vec.ir, -1))


for _op in {**INTEGER, **FLOAT, **COMPARE}:
    _register(_op, _op)
for _key, _op in IN_PLACE.items():
    _register(_key, _op)
_register_unary(operator.neg, _negate)
_register_unary(operator.invert, _invert)

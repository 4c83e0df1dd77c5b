"""Element-wise math on vectors; exp, log, tanh and similar are in functions.py."""

from __future__ import annotations

from llvmlite import ir

from ggml_cpu.kernel import Function
from ggml_cpu.target import FMA

from .vec import Vec, broadcast, call, common, constant, intrinsic, suffix, without_literal


@intrinsic
def fma(typing, a, b, c):
    """Return a * b + c with one rounding (two if the CPU has no FMA); scalars broadcast."""
    vec = common(a, b, c)
    if vec is None or not vec.is_float:
        return None
    name = "llvm.fma" if FMA else "llvm.fmuladd"

    def emit(context, builder, sig, args):
        full = [broadcast(context, builder, x, k, vec) for x, k in zip(args, sig.args, strict=True)]
        return call(builder, f"{name}.{suffix(vec.ir)}", vec.ir, full)

    return vec(*map(without_literal, (a, b, c))), emit


def _unary(name: str) -> Function:
    @intrinsic
    def function(typing, x):
        if not isinstance(x, Vec) or not x.is_float:
            return None

        def emit(context, builder, sig, args):
            return call(builder, f"llvm.{name}.{suffix(x.ir)}", x.ir, args)

        return x(x), emit

    return function


vround = _unary("rint")
vfloor = _unary("floor")
vceil = _unary("ceil")
vtrunc = _unary("trunc")
vsqrt = _unary("sqrt")


@intrinsic
def vabs(typing, x):
    """Return the absolute value of a float or integer vector."""
    if not isinstance(x, Vec):
        return None

    def emit(context, builder, sig, args):
        if x.is_float:
            return call(builder, f"llvm.fabs.{suffix(x.ir)}", x.ir, args)
        negated = builder.sub(constant(x.ir, 0), args[0])
        negative = builder.icmp_signed("<", args[0], constant(x.ir, 0))
        return builder.select(negative, negated, args[0])

    return x(x), emit


def pick(builder: ir.IRBuilder, comparison: str, x: ir.Value, y: ir.Value, vec: Vec) -> ir.Value:
    """Emit x if `x comparison y`, else y (also if either is NaN): one minps/maxps on x86."""
    if vec.is_float:
        holds = builder.fcmp_ordered(comparison, x, y)
    else:
        holds = builder.icmp_signed(comparison, x, y)
    return builder.select(holds, x, y)


def _pick(comparison: str) -> Function:
    @intrinsic
    def function(typing, a, b):
        vec = common(a, b)
        if vec is None:
            return None

        def emit(context, builder, sig, args):
            x = broadcast(context, builder, args[0], sig.args[0], vec)
            y = broadcast(context, builder, args[1], sig.args[1], vec)
            return pick(builder, comparison, x, y, vec)

        return vec(without_literal(a), without_literal(b)), emit

    return function


vmax = _pick(">")
vmin = _pick("<")


@intrinsic
def copysign(typing, magnitude, sign):
    """Return |magnitude| with the sign of `sign`."""
    vec = common(magnitude, sign)
    if vec is None or not vec.is_float:
        return None

    def emit(context, builder, sig, args):
        x = broadcast(context, builder, args[0], sig.args[0], vec)
        y = broadcast(context, builder, args[1], sig.args[1], vec)
        return call(builder, f"llvm.copysign.{suffix(vec.ir)}", vec.ir, [x, y])

    return vec(without_literal(magnitude), without_literal(sign)), emit

"""Reductions of a vector to a scalar: sum, maximum, minimum, and masks as integers."""

from __future__ import annotations

from llvmlite import ir
from numba.core import types

from ggml_cpu.kernel import Function

from .lanes import WORDS
from .math import pick
from .vec import ELEMENTS, I64, Vec, call, inlined, intrinsic, pieces, suffix

to_f64 = WORDS["to_f64"]


@intrinsic
def vsum(typing, x):
    """Return the sum of the lanes: float in any order, or int64 (summed at lane width)."""
    if not isinstance(x, Vec):
        return None

    def emit(context, builder, sig, args):
        element = ELEMENTS[x.elem]
        if x.is_float:
            name = f"llvm.vector.reduce.fadd.{suffix(x.ir)}"
            zero = ir.Constant(element, -0.0)
            return call(builder, name, element, [zero, args[0]], fastmath=("reassoc",))
        total = call(builder, f"llvm.vector.reduce.add.{suffix(x.ir)}", element, args)
        return builder.sext(total, I64) if x.bits < 64 else total

    return x.scalar(x), emit


@inlined
def vsum64(x):
    """Return the sum of an f32 vector's lanes, added in float64."""
    return vsum(to_f64(x))


def _extreme(comparison: str) -> Function:
    @intrinsic
    def extreme(typing, x):
        if not isinstance(x, Vec):
            return None

        def emit(context, builder, sig, args):
            value, n = args[0], x.n
            while n > 1:
                n //= 2
                left, right = pieces(builder, value, 2)
                value = pick(builder, comparison, left, right, Vec(x.elem, n))
            one = builder.extract_element(value, ir.Constant(ir.IntType(32), 0))
            return builder.sext(one, I64) if not x.is_float and x.bits < 64 else one

        return x.scalar(x), emit

    return extreme


vmaxval = _extreme(">")
vminval = _extreme("<")


@intrinsic
def vbits(typing, mask):
    """Return the mask as an int64: bit i is lane i."""
    if not (isinstance(mask, Vec) and mask.elem == "i1" and mask.n <= 64):
        return None

    def emit(context, builder, sig, args):
        bits = builder.bitcast(args[0], ir.IntType(mask.n))
        return builder.zext(bits, I64) if mask.n < 64 else bits

    return types.int64(mask), emit


@intrinsic
def lowest_bit(typing, bits):
    """Return the index of the lowest set bit of a nonzero int64 (cttz)."""

    def emit(context, builder, sig, args):
        return call(builder, "llvm.cttz.i64", I64, [args[0], ELEMENTS["i1"](1)])

    return types.int64(types.int64), emit

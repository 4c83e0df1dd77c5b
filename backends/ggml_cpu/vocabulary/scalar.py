"""Scalar float32 functions of libm: `expf(x)`, `powf(x, y)`, ...

The loader binds the names in symbols.py. `sqrtf floorf ceilf truncf rintf fabsf` are LLVM
intrinsics.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import types

from ggml_cpu.kernel import Function
from ggml_cpu.symbols import LIBM_BINARY, LIBM_UNARY

from .vec import call, intrinsic, without_literal

WORDS: dict[str, Function] = {}


def _libm(name: str, count: int) -> Function:
    def emit(context, builder, sig, args):
        numbers = [
            context.cast(builder, a, k, types.float32) for a, k in zip(args, sig.args, strict=True)
        ]
        return call(builder, name, ir.FloatType(), numbers)

    if count == 1:

        @intrinsic
        def unary(typing, x):
            return types.float32(without_literal(x)), emit

        return unary

    @intrinsic
    def binary(typing, x, y):
        return types.float32(without_literal(x), without_literal(y)), emit

    return binary


for _name in LIBM_UNARY:
    WORDS[_name] = _libm(_name, 1)
for _name in ("sqrt", "floor", "ceil", "trunc", "rint", "fabs"):
    WORDS[f"{_name}f"] = _libm(f"llvm.{_name}.f32", 1)
for _name in LIBM_BINARY:
    WORDS[_name] = _libm(_name, 2)

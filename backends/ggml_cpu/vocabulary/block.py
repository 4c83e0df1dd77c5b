"""Accessors of the parameter block (layout: ggml_cpu/params.py), and work split over threads.

The block does not change while a kernel runs, so its loads are marked invariant: LLVM may hoist
and merge the loads.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import types

from ggml_cpu.kernel import Function
from ggml_cpu.params import (
    EXTRA,
    LOCAL,
    LOCAL_BYTES,
    NB,
    NE,
    OP_PARAMS,
    SHARED,
    TENSOR_WORDS,
    TENSORS,
)

from .lanes import f32_of_bits
from .vec import I32, I64, inlined, intrinsic, pointer


def _constant_load(ir_type: ir.Type) -> Function:
    @intrinsic
    def load(typing, addr):
        def emit(context, builder, sig, args):
            value = builder.load(pointer(builder, args[0], ir_type), align=4)
            value.set_metadata("invariant.load", builder.module.add_metadata([]))
            return value if ir_type == I64 else builder.sext(value, I64)

        return types.int64(types.int64), emit

    return load


_word = _constant_load(I64)
_half_word = _constant_load(I32)


@inlined
def data(p, k):
    """Return the address of tensor k (0 dst, 1.. src[0]..); 0 if the source is missing."""
    return _word(p + 8 * (TENSORS + TENSOR_WORDS * k))


@inlined
def ne(p, k, i):
    """Return the number of elements of tensor k in dimension i."""
    return _word(p + 8 * (TENSORS + TENSOR_WORDS * k + NE + i))


@inlined
def nb(p, k, i):
    """Return the stride in bytes of tensor k in dimension i."""
    return _word(p + 8 * (TENSORS + TENSOR_WORDS * k + NB + i))


@inlined
def op_i32(p, i):
    """Return 32-bit word i of the node's op params as an integer."""
    return _half_word(p + 8 * OP_PARAMS + 4 * i)


@inlined
def op_f32(p, i):
    """Return 32-bit word i of the node's op params as a float32."""
    return f32_of_bits(_half_word(p + 8 * OP_PARAMS + 4 * i))


@inlined
def extra(p, i):
    """Return integer i of the result of the kernel's `extra=` function."""
    return _word(p + 8 * (EXTRA + i))


@inlined
def shared(p):
    """Return the address of the scratch shared by all threads."""
    return _word(p + 8 * SHARED)


@inlined
def local(p, ith):
    """Return the address of thread ith's local scratch."""
    return _word(p + 8 * LOCAL) + ith * _word(p + 8 * LOCAL_BYTES)


@inlined
def split(n, ith, nth):
    """Return (start, stop), thread ith's contiguous part of range(n)."""
    return n * ith // nth, n * (ith + 1) // nth


@inlined
def split_aligned(n, step, ith, nth):
    """Return (start, stop) like `split`, with starts at multiples of `step`."""
    units = (n + step - 1) // step
    return min(n, units * ith // nth * step), min(n, units * (ith + 1) // nth * step)

"""Byte lookup and scaling by powers of two; LLVM has no portable operation for either.

Each has a variant with the target's instruction and a portable variant, with equal results.
"""

from __future__ import annotations

from llvmlite import ir

from ggml_cpu.target import ARM64, AVX512, LANES, has

from .lanes import WORDS, asr
from .vec import I32, Vec, apply_pieces, call, inlined, intrinsic, join, permute, pieces

as_f32, as_i32 = WORDS["as_f32"], WORDS["as_i32"]
MAGIC, MAGIC_BITS = 12582912.0, 0x4B400000  # 1.5 * 2**23


@intrinsic
def _scalef(typing, x, n):
    def one(builder, x, n):
        count = x.type.count
        mask = ir.IntType({4: 8, 8: 8, 16: 16}[count])
        args = [x, n, x, ir.Constant(mask, -1)]
        if count == 16:
            args.append(I32(4))  # current rounding mode
        return call(builder, f"llvm.x86.avx512.mask.scalef.ps.{count * 32}", x.type, args)

    def emit(context, builder, sig, args):
        return apply_pieces(builder, 16, args, one)

    return x(x, n), emit


@inlined
def _scale_in_two_steps(x, n):
    """Return x * 2**n by two factors, so that subnormal and infinite results are correct."""
    i = as_i32(n + MAGIC) - MAGIC_BITS
    half = asr(i, 1)
    first = as_f32((half + 127) << 23)
    return x * first * as_f32((i - half + 127) << 23)


# scale_by_power_of_two(x, n): x * 2**n for an f32 vector n of integers in [-250, 250].
scale_by_power_of_two = _scalef if AVX512 else _scale_in_two_steps


def _byte_shuffle(builder: ir.IRBuilder, table: ir.Value, index: ir.Value) -> ir.Value:
    """Emit table lookups for at most one native vector, as one instruction."""
    n = index.type.count
    if ARM64:
        return call(builder, "llvm.aarch64.neon.tbl1.v16i8", index.type, [table, index])
    name = {16: "ssse3.pshuf.b.128", 32: "avx2.pshuf.b", 64: "avx512.pshuf.b.512"}[n]
    repeated = permute(builder, table, [i % 16 for i in range(n)])
    return call(builder, f"llvm.x86.{name}", index.type, [repeated, index])


def _lookup_one_by_one(builder: ir.IRBuilder, table: ir.Value, index: ir.Value) -> ir.Value:
    result = index
    for i in range(index.type.count):
        where = builder.extract_element(index, I32(i))
        result = builder.insert_element(result, builder.extract_element(table, where), I32(i))
    return result


@intrinsic
def lookup16(typing, table, index):
    """Return table[index[i]] in lane i; i8x16 table, i8 vector of indices 0..15."""
    if not isinstance(index, Vec) or table != Vec("i8", 16) or index.elem != "i8" or index.n < 16:
        return None

    def emit(context, builder, sig, args):
        one = _byte_shuffle if ARM64 or has("ssse3") else _lookup_one_by_one
        parts = pieces(builder, args[1], max(1, index.n // (4 * LANES)))
        return join(builder, [one(builder, args[0], part) for part in parts])

    return index(table, index), emit

"""bf16 dot products, in hardware if the target supports it; the summation order then differs."""

from __future__ import annotations

from llvmlite import ir

from ggml_cpu.target import BF16, LANES, NEON_BF16, X86

from .half import f32_to_bf16
from .lanes import WORDS, concat, even, odd, shuffle
from .vec import I32, Vec, apply_pieces, call, constant, inlined, intrinsic, suffix

I16 = ir.IntType(16)
as_i16, as_i32, f32x8 = WORDS["as_i16"], WORDS["as_i32"], WORDS["f32x8"]


class _BFloat(ir.Type):
    """LLVM's bfloat type, which llvmlite lacks."""

    null = "0.0"

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


def _bf16_halves(
    builder: ir.IRBuilder, v: ir.Value, floats: ir.VectorType
) -> tuple[ir.Value, ir.Value]:
    """Emit the even and the odd bf16 lanes as two f32 vectors."""
    words = builder.bitcast(v, ir.VectorType(I32, floats.count))
    first = builder.shl(words, constant(words.type, 16))
    second = builder.and_(words, constant(words.type, -65536))
    return builder.bitcast(first, floats), builder.bitcast(second, floats)


def _plain_dotbf16(builder: ir.IRBuilder, acc: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
    name = f"llvm.fmuladd.{suffix(acc.type)}"
    left, right = (_bf16_halves(builder, v, acc.type) for v in (x, y))
    for a, b in zip(left, right, strict=True):
        acc = call(builder, name, acc.type, [a, b, acc])
    return acc


def _hardware_dotbf16(builder: ir.IRBuilder, acc: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
    n = acc.type.count
    pairs = ir.VectorType(_BFloat(), 2 * n)
    operands = [acc, builder.bitcast(x, pairs), builder.bitcast(y, pairs)]
    name = f"x86.avx512bf16.dpbf16ps.{n * 32}" if X86 else "aarch64.neon.bfdot.v4f32.v8bf16"
    return call(builder, f"llvm.{name}", acc.type, operands)


def _hardware_bf16(builder: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    n = 2 * x.type.count
    name = f"llvm.x86.avx512bf16.cvtne2ps2bf16.{n * 16}"
    halves = call(builder, name, ir.VectorType(_BFloat(), n), [y, x])
    return builder.bitcast(halves, ir.VectorType(I16, n))


@intrinsic
def _cvtne2ps2bf16(typing, x, y):
    if x != y or x != Vec("f32", LANES):
        return None

    def emit(context, builder, sig, args):
        return _hardware_bf16(builder, *args)

    return Vec("i16", 2 * LANES)(x, y), emit


@inlined
def _plain_bf16(x, y):
    return concat(f32_to_bf16(x), f32_to_bf16(y))


# bf16_of(x, y): the f32 vectors x and y concatenated, as raw bf16 (i16) for dotbf16 or AMX tiles.
# Subnormals may become 0.
bf16_of = _cvtne2ps2bf16 if BF16 and X86 else _plain_bf16


@intrinsic
def dotbf16(typing, acc, x, y):
    """Return acc[i] + x[2i] * y[2i] + x[2i + 1] * y[2i + 1]; x, y raw bf16 (i16), acc f32.

    The hardware instruction treats subnormal inputs as 0.
    """
    if not all(isinstance(v, Vec) for v in (acc, x, y)) or acc.elem != "f32":
        return None
    if not x == y == Vec("i16", 2 * acc.n) or acc.n < 4:
        return None

    def emit(context, builder, sig, args):
        widest = LANES if BF16 else 16
        return apply_pieces(builder, widest, args, _hardware_dotbf16 if BF16 else _plain_dotbf16)

    return acc(acc, x, y), emit


@intrinsic
def _bfmmla(typing, acc, x, y):
    if acc != Vec("f32", 4) or not x == y == Vec("i16", 8):
        return None

    def emit(context, builder, sig, args):
        fours = ir.VectorType(_BFloat(), 8)
        operands = [args[0], *(builder.bitcast(v, fours) for v in args[1:])]
        return call(builder, "llvm.aarch64.neon.bfmmla", acc.ir, operands)

    return acc(acc, x, y), emit


@inlined
def _plain_matrix_dotbf16(acc, x, y):
    rows = shuffle(as_i32(x), 0, 1, 0, 1, 2, 3, 2, 3)
    columns = shuffle(as_i32(y), 0, 1, 2, 3, 0, 1, 2, 3)
    dots = dotbf16(f32x8(0.0), as_i16(rows), as_i16(columns))
    return acc + (even(dots) + odd(dots))


# acc f32x4, 2 x 2: acc[2i + j] += sum over k < 4 of x[4i + k] * y[4j + k]; x, y raw bf16.
matrix_dotbf16 = _bfmmla if NEON_BF16 else _plain_matrix_dotbf16

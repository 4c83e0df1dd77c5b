"""The operations LLVM cannot express portably: integer and bf16 dot products, byte lookup, scaling.

Each has a form for the CPU features at hand and a plain one; results agree exactly within the
ranges stated (bf16 products excepted, whose order of addition differs).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeGuard

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import types
from numba.core.typing.templates import Signature

from ggml_cpu.kernel import Function
from ggml_cpu.target import ARM64, AVX2, AVX512, BF16, I8_BIAS, NEON_DOT, VNNI, X86, has

from .lanes import WORDS, asr
from .vec import I32, Vec, call, constant, inlined, intrinsic, joined, permute, pieces, suffix

as_f32, as_i8, as_i16, as_i32 = (WORDS[f"as_{e}"] for e in ("f32", "i8", "i16", "i32"))
Emit = Callable[..., ir.Value]  # emit(builder, *operands), of one native width
I8, I16 = ir.IntType(8), ir.IntType(16)
MAGIC, MAGIC_BITS = 12582912.0, 0x4B400000  # 1.5 * 2**23


class _BFloat(ir.Type):
    """LLVM's bfloat, which llvmlite does not spell."""

    null = "0.0"

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


def _dot_takes_bytes() -> bool:
    """Whether this LLVM declares vpdpbusd on byte vectors (newer) or on dwords (older)."""
    text = """
        declare <4 x i32> @llvm.x86.avx512.vpdpbusd.128(<4 x i32>, <16 x i8>, <16 x i8>)
        define <4 x i32> @dot(<4 x i32> %a, <16 x i8> %x) {
            %b = call <4 x i32> @llvm.x86.avx512.vpdpbusd.128(
                <4 x i32> %a, <16 x i8> %x, <16 x i8> %x)
            ret <4 x i32> %b
        }
    """
    try:
        llvm.parse_assembly(text).verify()
    except RuntimeError:
        return False
    return True


DOT_TAKES_BYTES = VNNI and _dot_takes_bytes()


def _parts(n: int, widest: int) -> int:
    """Pieces of at most `widest` i32 lanes that an n-lane operation is cut into."""
    return max(1, n // widest)


def _chunked(builder: ir.IRBuilder, widest: int, args: Sequence[ir.Value], one: Emit) -> ir.Value:
    """Apply `one(builder, acc, x, y)` to pieces of at most `widest` accumulators."""
    count = _parts(args[0].type.count, widest)
    split = [pieces(builder, a, count) for a in args]
    return joined(builder, [one(builder, *piece) for piece in zip(*split, strict=True)])


def _vnni(name: str) -> Emit:
    def one(builder: ir.IRBuilder, acc: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
        if not DOT_TAKES_BYTES:
            x, y = builder.bitcast(x, acc.type), builder.bitcast(y, acc.type)
        return call(builder, f"llvm.x86.avx512.{name}.{acc.type.count * 32}", acc.type, [acc, x, y])

    return one


def _pair_sums(builder: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    """i32 sums of neighbouring i16 products (pmaddwd)."""
    n = x.type.count // 2
    result = ir.VectorType(I32, n)
    name = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}.get(n)
    if X86 and name and (n == 4 or (n == 8 and AVX2) or AVX512):
        return call(builder, f"llvm.x86.{name}", result, [x, y])
    wide = ir.VectorType(I32, 2 * n)
    product = builder.mul(builder.sext(x, wide), builder.sext(y, wide))
    first = permute(builder, product, range(0, 2 * n, 2))
    return builder.add(first, permute(builder, product, range(1, 2 * n, 2)))


def _maddubs(builder: ir.IRBuilder, acc: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
    n = acc.type.count
    name = {4: "ssse3.pmadd.ub.sw.128", 8: "avx2.pmadd.ub.sw"}[n]
    pairs = call(builder, f"llvm.x86.{name}", ir.VectorType(I16, 2 * n), [x, y])
    return builder.add(acc, _pair_sums(builder, pairs, constant(pairs.type, 1)))


def _sdot(builder: ir.IRBuilder, acc: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
    return call(builder, "llvm.aarch64.neon.sdot.v4i32.v16i8", acc.type, [acc, x, y])


def _plain_dot4(signed: bool) -> Emit:
    """Byte products inside i16 lanes, two at a time, then pairs of those inside i32 lanes."""

    def emit(builder: ir.IRBuilder, acc: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
        n = acc.type.count
        half = ir.VectorType(I16, 2 * n)
        x, y = builder.bitcast(x, half), builder.bitcast(y, half)
        eight = constant(half, 8)

        def low(v: ir.Value, sign: bool) -> ir.Value:
            if sign:
                return builder.ashr(builder.shl(v, eight), eight)
            return builder.and_(v, constant(half, 255))

        def high(v: ir.Value, sign: bool) -> ir.Value:
            return builder.ashr(v, eight) if sign else builder.lshr(v, eight)

        pairs = builder.add(
            builder.mul(low(x, signed), low(y, True)), builder.mul(high(x, signed), high(y, True))
        )
        words, sixteen = builder.bitcast(pairs, acc.type), constant(acc.type, 16)
        first = builder.ashr(builder.shl(words, sixteen), sixteen)
        return builder.add(acc, builder.add(first, builder.ashr(words, sixteen)))

    return emit


def _is_dot(
    acc: types.Type, x: types.Type, y: types.Type, elem: str, ratio: int
) -> TypeGuard[Vec]:
    return isinstance(acc, Vec) and acc.elem == "i32" and x == y == Vec(elem, acc.n * ratio)


def _dot4(
    acc: types.Type, x: types.Type, y: types.Type, choose: tuple[int, Emit]
) -> tuple[Signature, Function] | None:
    """Typing and lowering of a byte dot product; choose: (widest, emitter)."""
    if not _is_dot(acc, x, y, "i8", 4) or acc.n < 4:
        return None

    def emit(context, builder, sig, args):
        widest, one = choose
        return _chunked(builder, widest, args, one)

    return acc(acc, x, y), emit


@intrinsic
def dot4(typing, acc, u, s):
    """acc[i] += sum over j < 4 of u[4i + j] * s[4i + j]; u unsigned and <= 127, s signed."""
    if VNNI:
        choose = 16, _vnni("vpdpbusd")
    elif AVX2:
        choose = 8, _maddubs
    elif NEON_DOT:
        choose = 4, _sdot
    else:
        choose = 4, _plain_dot4(signed=False)
    return _dot4(acc, u, s, choose)


@intrinsic
def _vnni_u8(typing, acc, u, s):
    return _dot4(acc, u, s, (16, _vnni("vpdpbusd")))


@intrinsic
def _signed_dot(typing, acc, x, y):
    return _dot4(acc, x, y, (4, _sdot if NEON_DOT else _plain_dot4(signed=True)))


@intrinsic
def _sign_dot(typing, acc, x, y):
    """|x| times y with the sign of x (psignb), for maddubs."""

    def one(builder, acc, x, y):
        name = {4: "ssse3.psign.b.128", 8: "avx2.psign.b"}[acc.type.count]
        signed = call(builder, f"llvm.x86.{name}", x.type, [y, x])
        size = call(builder, f"llvm.x86.{name}", x.type, [x, x])
        return _maddubs(builder, acc, size, signed)

    return _dot4(acc, x, y, (8, one))


@inlined
def _vnni_signed(acc, x, y):
    """(x + 128) * y - 128 * y: two unsigned-by-signed products."""
    flipped = as_i8(as_i32(x) ^ 0x80808080)
    bias = as_i8((as_i32(x) & 0) | 0x80808080)
    return acc + (_vnni_u8(acc & 0, flipped, y) - _vnni_u8(acc & 0, bias, y))


# acc[i] += sum over j < 4 of x[4i + j] * y[4i + j]; both signed, y >= -127.
dot4_i8 = _vnni_signed if VNNI else _sign_dot if AVX2 else _signed_dot

# As `dot4_i8` for an x stored with I8_BIAS XORed into its bytes. Where I8_BIAS is 128 the caller
# adds -128 * sum(y) itself (once, outside the loop); where it is 0 there is nothing to add.
dot4_biased = _vnni_u8 if I8_BIAS else dot4_i8


@intrinsic
def dot2(typing, acc, x, y):
    """acc[i] += x[2i] * y[2i] + x[2i + 1] * y[2i + 1], i16 into i32."""
    if not _is_dot(acc, x, y, "i16", 2) or acc.n < 4:
        return None

    def plain(builder, acc, x, y):
        return builder.add(acc, _pair_sums(builder, x, y))

    def emit(context, builder, sig, args):
        if VNNI:
            return _chunked(builder, 16, args, _vnni("vpdpwssd"))
        return _chunked(builder, 8 if AVX2 else 4, args, plain)

    return acc(acc, x, y), emit


def _bf16_halves(
    builder: ir.IRBuilder, v: ir.Value, floats: ir.VectorType
) -> tuple[ir.Value, ir.Value]:
    """The even and the odd bf16 of each dword, as f32."""
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
    return call(builder, f"llvm.x86.avx512bf16.dpbf16ps.{n * 32}", acc.type, operands)


@intrinsic
def dotbf16(typing, acc, x, y):
    """acc[i] += x[2i] * y[2i] + x[2i + 1] * y[2i + 1]; x, y raw bf16 (i16), acc f32.

    The hardware form treats subnormal inputs as 0.
    """
    if not all(isinstance(v, Vec) for v in (acc, x, y)) or acc.elem != "f32":
        return None
    if not x == y == Vec("i16", 2 * acc.n) or acc.n < 4:
        return None

    def emit(context, builder, sig, args):
        return _chunked(builder, 16, args, _hardware_dotbf16 if BF16 else _plain_dotbf16)

    return acc(acc, x, y), emit


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
        return _chunked(builder, 16, args, one)

    return x(x, n), emit


@inlined
def _scale_in_two_steps(x, n):
    """Two factors, so that the result may be subnormal or overflow without a wrong exponent."""
    i = as_i32(n + MAGIC) - MAGIC_BITS
    half = asr(i, 1)
    first = as_f32((half + 127) << 23)
    return x * first * as_f32((i - half + 127) << 23)


# x * 2**n for an f32 vector n of integers in [-250, 250].
scale_by_power_of_two = _scalef if AVX512 else _scale_in_two_steps


def _byte_shuffle(builder: ir.IRBuilder, table: ir.Value, index: ir.Value) -> ir.Value:
    """Up to one native vector of table lookups in one instruction."""
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
    """Lane i is table[index[i]]: an i8x16 table, an i8 vector of indices 0..15."""
    if not isinstance(index, Vec) or table != Vec("i8", 16) or index.elem != "i8" or index.n < 16:
        return None

    def emit(context, builder, sig, args):
        widest = 64 if AVX512 else 32 if AVX2 else 16
        one = _byte_shuffle if ARM64 or has("ssse3") else _lookup_one_by_one
        parts = pieces(builder, args[1], max(1, index.n // widest))
        return joined(builder, [one(builder, args[0], part) for part in parts])

    return index(table, index), emit

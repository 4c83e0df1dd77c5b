"""Integer dot products; LLVM has no portable operation for this.

Each has a variant for the target's dot instruction and a portable variant; both give equal results
within the stated ranges.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeGuard

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import types
from numba.core.typing.templates import Signature

from ggml_cpu.kernel import Function
from ggml_cpu.target import AVX2, AVX512, I8_BIAS, LANES, NEON_DOT, NEON_MATRIX, PAIRS, VNNI, X86

from .lanes import WORDS, even, odd, shuffle
from .vec import I32, Vec, apply_pieces, call, constant, inlined, intrinsic, permute

as_i8, as_i32 = WORDS["as_i8"], WORDS["as_i32"]
Emit = Callable[..., ir.Value]  # emit(builder, *operands) for one native vector
I8, I16 = ir.IntType(8), ir.IntType(16)


def _dot_takes_bytes() -> bool:
    """Return True if LLVM declares vpdpbusd on byte vectors (newer), False for dwords (older)."""
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


def _vnni(name: str) -> Emit:
    def one(builder: ir.IRBuilder, acc: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
        if not DOT_TAKES_BYTES:
            x, y = builder.bitcast(x, acc.type), builder.bitcast(y, acc.type)
        return call(builder, f"llvm.x86.avx512.{name}.{acc.type.count * 32}", acc.type, [acc, x, y])

    return one


def _pair_sums(builder: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    """Emit i32 sums of adjacent i16 products (pmaddwd)."""
    n = x.type.count // 2
    result = ir.VectorType(I32, n)
    name = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}.get(n)
    if X86 and name and (n == 4 or (n == 8 and AVX2) or AVX512):
        return call(builder, f"llvm.x86.{name}", result, [x, y])
    wide = ir.VectorType(I32, 2 * n)
    product = builder.mul(builder.sext(x, wide), builder.sext(y, wide))
    first = permute(builder, product, range(0, 2 * n, 2))
    return builder.add(first, permute(builder, product, range(1, 2 * n, 2)))


def _byte_pairs(builder: ir.IRBuilder, u: ir.Value, s: ir.Value) -> ir.Value:
    """Emit i16 sums of adjacent byte products, unsigned x signed (pmaddubsw)."""
    n = u.type.count
    name = {16: "ssse3.pmadd.ub.sw.128", 32: "avx2.pmadd.ub.sw", 64: "avx512.pmaddubs.w.512"}[n]
    return call(builder, f"llvm.x86.{name}", ir.VectorType(I16, n // 2), [u, s])


def _maddubs(builder: ir.IRBuilder, acc: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
    pairs = _byte_pairs(builder, x, y)
    return builder.add(acc, _pair_sums(builder, pairs, constant(pairs.type, 1)))


def _sdot(builder: ir.IRBuilder, acc: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
    return call(builder, "llvm.aarch64.neon.sdot.v4i32.v16i8", acc.type, [acc, x, y])


def _plain_pairs(builder: ir.IRBuilder, x: ir.Value, y: ir.Value, signed: bool) -> ir.Value:
    """Emit the sum of the two byte products of each i16 lane; y is signed, x if `signed`."""
    half = ir.VectorType(I16, x.type.count // 2)
    x, y = builder.bitcast(x, half), builder.bitcast(y, half)
    eight = constant(half, 8)

    def low(v: ir.Value, sign: bool) -> ir.Value:
        if sign:
            return builder.ashr(builder.shl(v, eight), eight)
        return builder.and_(v, constant(half, 255))

    def high(v: ir.Value, sign: bool) -> ir.Value:
        return builder.ashr(v, eight) if sign else builder.lshr(v, eight)

    first = builder.mul(low(x, signed), low(y, True))
    return builder.add(first, builder.mul(high(x, signed), high(y, True)))


def _plain_dot4(signed: bool) -> Emit:
    """Return a portable emitter: sums of two products in i16, then sums of two in i32 lanes."""

    def emit(builder: ir.IRBuilder, acc: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
        pairs = _plain_pairs(builder, x, y, signed)
        words, sixteen = builder.bitcast(pairs, acc.type), constant(acc.type, 16)
        first = builder.ashr(builder.shl(words, sixteen), sixteen)
        return builder.add(acc, builder.add(first, builder.ashr(words, sixteen)))

    return emit


def _is_dot(acc: types.Type, x: types.Type, y: types.Type, elem: str, ratio: int) -> TypeGuard[Vec]:
    return isinstance(acc, Vec) and acc.elem == "i32" and x == y == Vec(elem, acc.n * ratio)


def _dot4(
    acc: types.Type, x: types.Type, y: types.Type, choose: tuple[int, Emit]
) -> tuple[Signature, Function] | None:
    """Return signature and lowering of a byte dot product; choose: (widest lanes, emitter)."""
    if not _is_dot(acc, x, y, "i8", 4) or acc.n < 4:
        return None

    def emit(context, builder, sig, args):
        widest, one = choose
        return apply_pieces(builder, widest, args, one)

    return acc(acc, x, y), emit


@intrinsic
def dot4(typing, acc, u, s):
    """Return acc[i] + sum over j < 4 of u[4i + j] * s[4i + j]; u unsigned and <= 127, s signed."""
    if VNNI:
        choose = LANES, _vnni("vpdpbusd")
    elif PAIRS:
        choose = LANES, _maddubs
    elif NEON_DOT:
        choose = 4, _sdot
    else:
        choose = 4, _plain_dot4(signed=False)
    return _dot4(acc, u, s, choose)


@intrinsic
def _vnni_u8(typing, acc, u, s):
    return _dot4(acc, u, s, (LANES, _vnni("vpdpbusd")))


@intrinsic
def _signed_dot(typing, acc, x, y):
    return _dot4(acc, x, y, (4, _sdot if NEON_DOT else _plain_dot4(signed=True)))


@intrinsic
def _sign_dot(typing, acc, x, y):
    """Return acc plus the byte dot of |x| and sign(x) * y by maddubs (AVX-512 has no psignb)."""

    def one(builder, acc, x, y):
        name = {4: "ssse3.psign.b.128", 8: "avx2.psign.b"}[acc.type.count]
        signed = call(builder, f"llvm.x86.{name}", x.type, [y, x])
        size = call(builder, f"llvm.x86.{name}", x.type, [x, x])
        return _maddubs(builder, acc, size, signed)

    def widest(builder, acc, x, y):
        zero = constant(x.type, 0)
        negative = builder.icmp_signed("<", x, zero)
        size = builder.select(negative, builder.sub(zero, x), x)
        return _maddubs(builder, acc, size, builder.select(negative, builder.sub(zero, y), y))

    return _dot4(acc, x, y, (LANES, widest if AVX512 else one))


@inlined
def _vnni_signed(acc, x, y):
    """Return acc + (x + 128) * y - 128 * y: two unsigned x signed dot products."""
    flipped = as_i8(as_i32(x) ^ 0x80808080)
    bias = as_i8((as_i32(x) & 0) | 0x80808080)
    return acc + (_vnni_u8(acc & 0, flipped, y) - _vnni_u8(acc & 0, bias, y))


# acc[i] += sum over j < 4 of x[4i + j] * y[4i + j]; both signed, y >= -127.
dot4_i8 = _vnni_signed if VNNI else _sign_dot if PAIRS else _signed_dot

# Like `dot4_i8`, with I8_BIAS XORed into the stored bytes of x. If I8_BIAS is 128, the caller adds
# -128 * sum(y), once, outside the loop.
dot4_biased = _vnni_u8 if I8_BIAS else dot4_i8


@intrinsic
def dot2(typing, acc, x, y):
    """Return acc[i] + x[2i] * y[2i] + x[2i + 1] * y[2i + 1], i16 into i32."""
    if not _is_dot(acc, x, y, "i16", 2) or acc.n < 4:
        return None

    def emit_plain(builder, acc, x, y):
        return builder.add(acc, _pair_sums(builder, x, y))

    def emit(context, builder, sig, args):
        return apply_pieces(builder, LANES, args, _vnni("vpdpwssd") if VNNI else emit_plain)

    return acc(acc, x, y), emit


@intrinsic
def dot_pairs(typing, acc, u, s):
    """Return acc[i] + u[2i] * s[2i] + u[2i + 1] * s[2i + 1], bytes into i16 sums.

    u is unsigned and <= 127, s is signed; the caller ensures that the sums fit into i16.
    """
    if not isinstance(acc, Vec) or acc.elem != "i16" or not u == s == Vec("i8", 2 * acc.n):
        return None
    if acc.n < 8:
        return None

    def one(builder, acc, u, s):
        pairs = _byte_pairs(builder, u, s) if PAIRS else _plain_pairs(builder, u, s, False)
        return builder.add(acc, pairs)

    def emit(context, builder, sig, args):
        return apply_pieces(builder, 2 * LANES, args, one)

    return acc(acc, u, s), emit


@intrinsic
def _smmla(typing, acc, x, y):
    if acc != Vec("i32", 4) or not x == y == Vec("i8", 16):
        return None

    def emit(context, builder, sig, args):
        return call(builder, "llvm.aarch64.neon.smmla.v4i32.v16i8", acc.ir, args)

    return acc(acc, x, y), emit


@inlined
def _plain_matrix_dot(acc, x, y):
    first, second = as_i32(x), as_i32(y)
    rows = shuffle(first, 0, 1, 0, 1, 2, 3, 2, 3)
    columns = shuffle(second, 0, 1, 2, 3, 0, 1, 2, 3)
    dots = dot4_i8(rows & 0, as_i8(rows), as_i8(columns))
    return acc + even(dots) + odd(dots)


# acc i32x4, 2 x 2: acc[2i + j] += sum over k < 8 of x[8i + k] * y[8j + k]; both signed, y >= -127.
matrix_dot = _smmla if NEON_MATRIX else _plain_matrix_dot

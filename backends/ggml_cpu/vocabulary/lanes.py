"""Broadcast, conversion, selection and permutation of lanes.

- `f32(x)`, `f32x16(x)`: broadcast a scalar (native or given width).
- `to_f32 to_f64 to_i8 to_i16 to_i32 to_i64`: convert each lane. Floats truncate toward zero;
  integers are sign-extended or truncated.
- `zext_i16 zext_i32 zext_i64`: zero-extend each lane.
- `as_f32 as_i8 ...`: bitcast the vector.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir
from numba.core import types

from ggml_cpu.kernel import Function

from .vec import (
    BITS,
    ELEMENTS,
    I32,
    I64,
    Vec,
    broadcast,
    call,
    common,
    intrinsic,
    is_scalar,
    permute,
    suffix,
    vector_names,
    without_literal,
)

WORDS: dict[str, Function] = {}


def _splat(vec: Vec) -> Function:
    @intrinsic
    def fill(typing, x):
        if not is_scalar(x):
            return None

        def emit(context, builder, sig, args):
            return broadcast(context, builder, args[0], sig.args[0], vec)

        return vec(without_literal(x)), emit

    return fill


def _convert(builder: ir.IRBuilder, value: ir.Value, source: Vec, target: Vec) -> ir.Value:
    if source.is_float and target.is_float:
        wider = target.bits > source.bits
        return (builder.fpext if wider else builder.fptrunc)(value, target.ir)
    if source.is_float:
        return builder.fptosi(value, target.ir)
    if target.is_float:
        return builder.sitofp(value, target.ir)
    return (builder.sext if target.bits > source.bits else builder.trunc)(value, target.ir)


def _build_convert(elem: str) -> Function:
    @intrinsic
    def convert(typing, x):
        if not isinstance(x, Vec):
            return None
        result = x.with_elem(elem)

        def emit(context, builder, sig, args):
            return args[0] if x == result else _convert(builder, args[0], x, result)

        return result(x), emit

    return convert


def _zext(elem: str) -> Function:
    @intrinsic
    def zext(typing, x):
        if not isinstance(x, Vec) or x.is_float or x.bits >= BITS[elem]:
            return None
        result = x.with_elem(elem)

        def emit(context, builder, sig, args):
            return builder.zext(args[0], result.ir)

        return result(x), emit

    return zext


def _build_bitcast(elem: str) -> Function:
    @intrinsic
    def reread(typing, x):
        if not isinstance(x, Vec):
            return None
        result = Vec(elem, x.n * x.bits // BITS[elem])

        def emit(context, builder, sig, args):
            return builder.bitcast(args[0], result.ir)

        return result(x), emit

    return reread


@intrinsic
def select(typing, mask, a, b):
    """Return a[i] for each lane i with mask[i] set, else b[i]; a or b may be a scalar."""
    if not (isinstance(mask, Vec) and mask.elem == "i1"):
        return None
    vec = common(a, b)
    if vec is None and is_scalar(a) and is_scalar(b):
        vec = Vec("f32", mask.n)
    if vec is None or vec.n != mask.n:
        return None

    def emit(context, builder, sig, args):
        x = broadcast(context, builder, args[1], sig.args[1], vec)
        y = broadcast(context, builder, args[2], sig.args[2], vec)
        return builder.select(args[0], x, y)

    return vec(mask, without_literal(a), without_literal(b)), emit


def _mask(n: int) -> Function:
    @intrinsic
    def mask(typing, bits):
        """Return a mask with lane i set if bit i of the int64 is set."""

        def emit(context, builder, sig, args):
            some = args[0] if n == 64 else builder.trunc(args[0], ir.IntType(n))
            return builder.bitcast(some, Vec("i1", n).ir)

        return Vec("i1", n)(types.int64), emit

    return mask


mask16, mask64 = _mask(16), _mask(64)


def _reduce_mask(name: str) -> Function:
    @intrinsic
    def reduce(typing, mask):
        if not (isinstance(mask, Vec) and mask.elem == "i1"):
            return None

        def emit(context, builder, sig, args):
            full = f"llvm.vector.reduce.{name}.{suffix(mask.ir)}"
            return call(builder, full, ELEMENTS["i1"], args)

        return types.boolean(mask), emit

    return reduce


vany = _reduce_mask("or")
vall = _reduce_mask("and")


@intrinsic
def iota(typing):
    """Return the native i32 vector 0, 1, 2, ..."""
    vec = dict(vector_names())["i32"]

    def emit(context, builder, sig, args):
        return ir.Constant(vec.ir, list(range(vec.n)))

    return vec(), emit


@intrinsic
def lane(typing, x, i):
    """Return lane `i` as a scalar: float32, float64, or int64 (sign-extended)."""
    if not isinstance(x, Vec):
        return None

    def emit(context, builder, sig, args):
        one = builder.extract_element(args[0], args[1])
        return builder.sext(one, I64) if not x.is_float and x.bits < 64 else one

    return x.scalar(x, types.int64), emit


@intrinsic
def set_lane(typing, x, i, value):
    """Return `x` with lane `i` replaced by a scalar."""
    if not isinstance(x, Vec):
        return None

    def emit(context, builder, sig, args):
        number = context.cast(builder, args[2], sig.args[2], x.scalar)
        if not x.is_float and x.bits < 64:
            number = builder.trunc(number, ELEMENTS[x.elem])
        return builder.insert_element(args[0], number, args[1])

    return x(x, types.int64, without_literal(value)), emit


def _order(indices_of: Callable[[int], list[int]]) -> Function:
    """Return a permutation of one vector; `indices_of(n)` lists the source lanes."""

    @intrinsic
    def rearrange(typing, x):
        if not isinstance(x, Vec):
            return None
        order = indices_of(x.n)
        result = Vec(x.elem, len(order))

        def emit(context, builder, sig, args):
            return permute(builder, args[0], order)

        return result(x), emit

    return rearrange


def _order2(indices_of: Callable[[int], list[int]]) -> Function:
    """Return a permutation of two vectors; lanes of the second are n, n + 1, ..."""

    @intrinsic
    def rearrange(typing, x, y):
        if not isinstance(x, Vec) or x != y:
            return None
        order = indices_of(x.n)
        result = Vec(x.elem, len(order))

        def emit(context, builder, sig, args):
            return permute(builder, args[0], order, args[1])

        return result(x, y), emit

    return rearrange


def _build_rearrange(indices_of: Callable[[int, int], list[int]]) -> Function:
    """Return a permutation with a literal int k; `indices_of(n, k)` lists the source lanes."""

    @intrinsic(prefer_literal=True)
    def rearrange(typing, x, k):
        if not isinstance(x, Vec) or not isinstance(k, types.IntegerLiteral):
            return None
        order = indices_of(x.n, k.literal_value)
        result = Vec(x.elem, len(order))

        def emit(context, builder, sig, args):
            return permute(builder, args[0], order)

        return result(x, k), emit

    return rearrange


def _build_rearrange3(indices_of: Callable[[int, int], list[int]]) -> Function:
    """Return a permutation of three vectors with a literal int k.

    `indices_of(n, k)` lists the source lanes 0 .. 3n - 1.
    """

    @intrinsic(prefer_literal=True)
    def rearrange(typing, x, y, z, k):
        if not isinstance(x, Vec) or x != y or x != z or not isinstance(k, types.IntegerLiteral):
            return None
        order, end = indices_of(x.n, k.literal_value), 2 * x.n
        of_two = [i if i < end else 0 for i in order]
        of_third = [place if i < end else i - x.n for place, i in enumerate(order)]

        def emit(context, builder, sig, args):
            two = permute(builder, args[0], of_two, args[1])
            return permute(builder, two, of_third, args[2])

        return x(x, y, z, k), emit

    return rearrange


def _interleave(start: int) -> Callable[[int], list[int]]:
    def order(n: int) -> list[int]:
        half = n // 2
        first = start * half
        return [i + side for i in range(first, first + half) for side in (0, n)]

    return order


low = _order(lambda n: list(range(n // 2)))
high = _order(lambda n: list(range(n // 2, n)))
even = _order(lambda n: list(range(0, n, 2)))
odd = _order(lambda n: list(range(1, n, 2)))
zip_halves = _order(lambda n: [i // 2 + i % 2 * (n // 2) for i in range(n)])
reverse = _order(lambda n: list(range(n))[::-1])
swap_pairs = _order(lambda n: [i ^ 1 for i in range(n)])
concat = _order2(lambda n: list(range(2 * n)))
zip_low = _order2(_interleave(0))
zip_high = _order2(_interleave(1))
evens = _order2(lambda n: list(range(0, 2 * n, 2)))
odds = _order2(lambda n: list(range(1, 2 * n, 2)))
quarter = _build_rearrange(lambda n, k: list(range(k * n // 4, (k + 1) * n // 4)))
rotate = _build_rearrange(lambda n, k: [(i + k) % n for i in range(n)])
every_third = _build_rearrange3(lambda n, k: [3 * i + k for i in range(n)])
mix_thirds = _build_rearrange3(lambda n, k: [i // 3 + i % 3 * n for i in range(k * n, (k + 1) * n)])
repeat_each = _build_rearrange(lambda n, k: [i // k for i in range(n * k)])
repeat_all = _build_rearrange(lambda n, k: [i % n for i in range(n * k)])


@intrinsic(prefer_literal=True)
def shuffle(typing, x, *order):
    """Return the lanes of `x` selected by the literal ints in `order`."""
    if not isinstance(x, Vec) or not all(isinstance(k, types.IntegerLiteral) for k in order):
        return None
    picked = [k.literal_value for k in order]
    result = Vec(x.elem, len(picked))

    def emit(context, builder, sig, args):
        return permute(builder, args[0], picked)

    return result(x, types.StarArgTuple.from_types(order)), emit


@intrinsic
def asr(typing, x, count):
    """Shift an integer vector right arithmetically by a scalar or vector (`>>` is logical)."""
    vec = common(x, count)
    if vec is None or vec.is_float:
        return None

    def emit(context, builder, sig, args):
        return builder.ashr(
            *(broadcast(context, builder, a, k, vec) for a, k in zip(args, sig.args, strict=True))
        )

    return vec(without_literal(x), without_literal(count)), emit


def _reread_scalar(
    source: types.Type, target: types.Type, source_ir: ir.Type, target_ir: ir.Type
) -> Function:
    @intrinsic
    def reread(typing, x):
        def emit(context, builder, sig, args):
            value = context.cast(builder, args[0], sig.args[0], source)
            value = builder.trunc(value, source_ir) if value.type == I64 else value
            value = builder.bitcast(value, target_ir)
            return builder.sext(value, I64) if target is types.int64 else value

        return target(without_literal(x)), emit

    return reread


f32_of_bits = _reread_scalar(types.int64, types.float32, I32, ir.FloatType())
bits_of_f32 = _reread_scalar(types.float32, types.int64, ir.FloatType(), I32)


for _name, _vec in vector_names():
    WORDS[_name] = _splat(_vec)
for _elem in ("i8", "i16", "i32", "i64", "f32", "f64"):
    WORDS[f"to_{_elem}"] = _build_convert(_elem)
    WORDS[f"as_{_elem}"] = _build_bitcast(_elem)
for _elem in ("i16", "i32", "i64"):
    WORDS[f"zext_{_elem}"] = _zext(_elem)

"""The vector type, a Numba type with LLVM vectors as values, and helpers that emit its IR.

Element types: `i1` (masks), `i8 i16 i32 i64 f32 f64`. f16 and bf16 exist in memory only: loads
convert to f32, stores round (memory.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.base import BaseContext
from numba.core.extending import intrinsic as intrinsic
from numba.core.extending import models, register_model

from ggml_cpu.kernel import fn
from ggml_cpu.target import LANES

ELEMENTS = {
    "i1": ir.IntType(1),
    "i8": ir.IntType(8),
    "i16": ir.IntType(16),
    "i32": ir.IntType(32),
    "i64": ir.IntType(64),
    "f32": ir.FloatType(),
    "f64": ir.DoubleType(),
}
BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "f32": 32, "f64": 64}
COUNTS = (2, 4, 8, 16, 32, 64, 128)
I32 = ir.IntType(32)
I64 = ir.IntType(64)

# An API function that is written with other API functions.
inlined = fn


class Vec(types.Type):
    """Numba type of a vector of `n` lanes of `elem`."""

    def __init__(self, elem: str, n: int) -> None:
        self.elem, self.n = elem, n
        super().__init__(name=f"{elem}x{n}")

    @property
    def ir(self) -> ir.VectorType:
        return ir.VectorType(ELEMENTS[self.elem], self.n)

    @property
    def bits(self) -> int:
        return BITS[self.elem]

    @property
    def is_float(self) -> bool:
        return self.elem[0] == "f"

    @property
    def scalar(self) -> types.Type:
        """The Numba type of an extracted lane: float32, float64, or int64 for all integers."""
        floats: dict[str, types.Type] = {"f32": types.float32, "f64": types.float64}
        return floats.get(self.elem, types.int64)

    def with_elem(self, elem: str) -> Vec:
        return Vec(elem, self.n)


@register_model(Vec)
class _VecModel(models.PrimitiveModel):
    def __init__(self, manager, vec):
        super().__init__(manager, vec, vec.ir)


def native_count(elem: str) -> int:
    """Return the lanes of a native vector: LANES for 32-bit elements, more for narrower types."""
    return LANES * 32 // BITS[elem]


def vector_names() -> list[tuple[str, Vec]]:
    """Return (name, type) of all vectors: `f32` for the native width, `f32x16` for 16 lanes."""
    named = []
    for elem in ("i8", "i16", "i32", "i64", "f32", "f64"):
        named.append((elem, Vec(elem, native_count(elem))))
        named += [(f"{elem}x{n}", Vec(elem, n)) for n in COUNTS]
    return named


def indices(values: Iterable[int]) -> ir.Constant:
    """Return a constant shuffle mask."""
    values = list(values)
    return ir.Constant(ir.VectorType(I32, len(values)), values)


def constant(vec_ir: ir.VectorType, value: float) -> ir.Constant:
    """Return a vector constant with the same value in every lane."""
    return ir.Constant(vec_ir, [value] * vec_ir.count)


def undef(vec_ir: ir.VectorType) -> ir.Constant:
    return ir.Constant(vec_ir, ir.Undefined)


def splat(builder: ir.IRBuilder, value: ir.Value, vec_ir: ir.VectorType) -> ir.Value:
    """Broadcast `value` to every lane."""
    first = builder.insert_element(undef(vec_ir), value, I32(0))
    return builder.shuffle_vector(first, undef(vec_ir), indices([0] * vec_ir.count))


def permute(
    builder: ir.IRBuilder, a: ir.Value, values: Iterable[int], b: ir.Value | None = None
) -> ir.Value:
    """Emit a shuffle of the lanes of `a` (0 .. n - 1) and `b` (n ..) in the given order."""
    return builder.shuffle_vector(a, undef(a.type) if b is None else b, indices(values))


def pieces(builder: ir.IRBuilder, vector: ir.Value, count: int) -> list[ir.Value]:
    """Split a vector into `count` equal parts."""
    if count == 1:
        return [vector]
    n = vector.type.count // count
    return [permute(builder, vector, range(i * n, i * n + n)) for i in range(count)]


def join(builder: ir.IRBuilder, parts: list[ir.Value]) -> ir.Value:
    """Concatenate equal parts, the inverse of `pieces`; their number is a power of two."""
    while len(parts) > 1:
        n = parts[0].type.count * 2
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [permute(builder, low, range(n), high) for low, high in pairs]
    return parts[0]


def apply_pieces(
    builder: ir.IRBuilder, widest: int, args: Sequence[ir.Value], one: Callable[..., ir.Value]
) -> ir.Value:
    """Apply `one(builder, acc, x, y)` to pieces of up to `widest` lanes of the first argument."""
    count = max(1, args[0].type.count // widest)
    split = [pieces(builder, a, count) for a in args]
    return join(builder, [one(builder, *piece) for piece in zip(*split, strict=True)])


def suffix(ir_type: ir.Type) -> str:
    """Return a type's suffix in the name of an LLVM intrinsic: `v16f32`, `f32`."""
    if isinstance(ir_type, ir.VectorType):
        return f"v{ir_type.count}{suffix(ir_type.element)}"
    return {"half": "f16", "float": "f32", "double": "f64"}.get(str(ir_type), str(ir_type))


def call(
    builder: ir.IRBuilder,
    name: str,
    result: ir.Type,
    args: Sequence[ir.Value],
    fastmath: Sequence[str] = (),
) -> ir.Value:
    """Emit a call of an external function or LLVM intrinsic."""
    kind = ir.FunctionType(result, [a.type for a in args])
    function = cgutils.get_or_insert_function(builder.module, kind, name)
    return builder.call(function, args, fastmath=fastmath)


def pointer(builder: ir.IRBuilder, address: ir.Value, ir_type: ir.Type) -> ir.Value:
    return builder.inttoptr(address, ir_type.as_pointer())


def is_scalar(kind: types.Type) -> bool:
    return isinstance(kind, (types.Integer, types.Float, types.Boolean))


def broadcast(
    context: BaseContext, builder: ir.IRBuilder, value: ir.Value, kind: types.Type, vec: Vec
) -> ir.Value:
    """Return a vector unchanged, or emit the broadcast of a scalar to type `vec`."""
    if isinstance(kind, Vec):
        return value
    if vec.is_float:
        scalar = context.cast(builder, value, kind, vec.scalar)
    else:
        wide = context.cast(builder, value, kind, types.int64)
        scalar = builder.trunc(wide, ELEMENTS[vec.elem]) if vec.bits < 64 else wide
    return splat(builder, scalar, vec.ir)


def fits(kind: types.Type, vec: Vec) -> bool:
    """Return True if a type can be combined with `vec`: the same type, or a scalar to broadcast."""
    if isinstance(kind, Vec):
        return kind == vec
    return is_scalar(kind) and (vec.is_float or not isinstance(kind, types.Float))


def common(*kinds: types.Type) -> Vec | None:
    """Return the operands' common vector type, or None if they cannot be combined."""
    vec = next((k for k in kinds if isinstance(k, Vec)), None)
    return vec if vec is not None and all(fits(k, vec) for k in kinds) else None


def without_literal(kind: types.Type) -> types.Type:
    """Return the type without its literal value."""
    found: types.Type = types.unliteral(kind)
    return found

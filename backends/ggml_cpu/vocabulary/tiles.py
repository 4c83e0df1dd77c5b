"""Register tiles: a fixed number of native vectors, indexed by a loop variable.

LLVM unrolls `for t in range(TILE)` and allocates the tile in registers, so the trip count must be
constant. `f32_tile()` and `i32_tile()` have TILE vectors; `f32_regs(4)` has the given literal
number. All vectors are initially zero. `tile[t]` reads a vector, `tile[t] = x` writes it.
"""

from __future__ import annotations

import operator

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.extending import models, register_model
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin

from ggml_cpu.kernel import Function
from ggml_cpu.target import TILE

from .vec import I32, Vec, constant, intrinsic, native_count

WORDS: dict[str, Function] = {}
ALIGN = 64


class Tile(types.Type):
    """Numba type of `count` vectors of type `vec`, in stack memory until LLVM promotes them."""

    def __init__(self, vec: Vec, count: int) -> None:
        self.vec, self.count = vec, count
        super().__init__(name=f"tile({vec}, {count})")


@register_model(Tile)
class _TileModel(models.PrimitiveModel):
    def __init__(self, manager, tile):
        super().__init__(manager, tile, ir.ArrayType(tile.vec.ir, tile.count).as_pointer())


def _zero_tile(builder: ir.IRBuilder, tile: Tile) -> ir.Value:
    memory = cgutils.alloca_once(builder, ir.ArrayType(tile.vec.ir, tile.count))
    zero = constant(tile.vec.ir, 0.0 if tile.vec.is_float else 0)
    for t in range(tile.count):
        builder.store(zero, builder.gep(memory, [I32(0), I32(t)]), align=ALIGN)
    return memory


def _fixed(vec: Vec) -> Function:
    @intrinsic
    def new(typing):
        tile = Tile(vec, TILE)

        def emit(context, builder, sig, args):
            return _zero_tile(builder, tile)

        return tile(), emit

    return new


def _build_new(vec: Vec) -> Function:
    @intrinsic(prefer_literal=True)
    def new(typing, count):
        if not isinstance(count, types.IntegerLiteral):
            return None
        tile = Tile(vec, count.literal_value)

        def emit(context, builder, sig, args):
            return _zero_tile(builder, tile)

        return tile(count), emit

    return new


@infer_global(operator.getitem)
class _GetItem(AbstractTemplate):
    key = operator.getitem

    def generic(self, args, kws):
        if len(args) == 2 and isinstance(args[0], Tile) and isinstance(args[1], types.Integer):
            return signature(args[0].vec, args[0], types.int64)
        return None


@infer_global(operator.setitem)
class _SetItem(AbstractTemplate):
    key = operator.setitem

    def generic(self, args, kws):
        if len(args) == 3 and isinstance(args[0], Tile) and isinstance(args[1], types.Integer):
            return signature(types.void, args[0], types.int64, args[0].vec)
        return None


@lower_builtin(operator.getitem, Tile, types.Integer)
def _get(context, builder, sig, args):
    return builder.load(builder.gep(args[0], [ir.IntType(64)(0), args[1]]), align=ALIGN)


@lower_builtin(operator.setitem, Tile, types.Integer, Vec)
def _set(context, builder, sig, args):
    where = builder.gep(args[0], [ir.IntType(64)(0), args[1]])
    builder.store(args[2], where, align=ALIGN)
    return context.get_dummy_value()


for _elem in ("f32", "i32"):
    WORDS[f"{_elem}_tile"] = _fixed(Vec(_elem, native_count(_elem)))
for _elem in ("f32", "f64", "i8", "i16", "i32"):
    WORDS[f"{_elem}_regs"] = _build_new(Vec(_elem, native_count(_elem)))

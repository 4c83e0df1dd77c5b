"""Intel AMX: eight tile registers of up to 16 rows x 64 bytes, and tile matmuls (TDP*).

Register numbers are literals, like the configured rows and 32-bit words per row of a register.
blocks/amx.py assigns the registers.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils, types

from ggml_cpu.kernel import Function
from ggml_cpu.target import CHECKED

from .vec import I32, I64, call, intrinsic, pointer

I8, VOID = ir.IntType(8), ir.VoidType()
SHAPES = ir.VectorType(I8, 64)


def _instruction(builder: ir.IRBuilder, name: str, registers: list[int], *rest: ir.Value) -> None:
    call(builder, f"llvm.x86.{name}", VOID, [*map(I8, registers), *rest])


def _numbers(*kinds: types.Type) -> list[int] | None:
    """Return the values of literal types, or None if any type is not a literal."""
    found = [kind.literal_value for kind in kinds if isinstance(kind, types.IntegerLiteral)]
    return found if len(found) == len(kinds) else None


@intrinsic
def amx_configure(typing, address):
    """Load the tile configuration (rows and row bytes) from 64 bytes at `address` (LDTILECFG)."""

    def emit(context, builder, sig, args):
        shapes = cgutils.alloca_once(builder, SHAPES)
        builder.store(builder.load(pointer(builder, args[0], SHAPES), align=1), shapes, align=1)
        _instruction(builder, "ldtilecfg", [], builder.bitcast(shapes, I8.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64), emit


@intrinsic
def amx_release(typing):
    """Release the tile registers and discard their contents (TILERELEASE)."""

    def emit(context, builder, sig, args):
        _instruction(builder, "tilerelease", [])
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic(prefer_literal=True)
def amx_zero(typing, register):
    numbers = _numbers(register)
    if numbers is None:
        return None

    def emit(context, builder, sig, args):
        _instruction(builder, "tilezero", numbers)
        return context.get_dummy_value()

    return types.void(register), emit


def _product(name: str) -> Function:
    @intrinsic(prefer_literal=True)
    def product(typing, c, a, b):
        numbers = _numbers(c, a, b)
        if numbers is None:
            return None

        def emit(context, builder, sig, args):
            _instruction(builder, name, numbers)
            return context.get_dummy_value()

        return types.void(c, a, b), emit

    return product


# TDPBF16PS: c[m][n] += sum over k and j < 2 of a[m][2k + j] * b[k][2n + j], bf16 into f32.
# Subnormals count as 0.
amx_dot_bf16 = _product("tdpbf16ps")
# TDPBSSD: c[m][n] += sum over k and j < 4 of a[m][4k + j] * b[k][4n + j], signed bytes into i32.
amx_dot_bytes = _product("tdpbssd")


def _move(name: str) -> Function:
    """Return a load or store of a tile register.

    If bounds are checked, rows are copied as vectors through a local variable, so that each row's
    access is checked.
    """
    loads = name != "tilestored64"

    @intrinsic(prefer_literal=True)
    def move(typing, register, address, stride, rows, words):
        numbers = _numbers(register, rows, words)
        if numbers is None:
            return None
        n_rows, row = numbers[1], ir.VectorType(I32, numbers[2])

        def copy(builder, address, stride, variable):
            for i in range(n_rows):
                at = builder.add(address, builder.mul(stride, I64(i)))
                outside = pointer(builder, at, row)
                inside = builder.gep(variable, [I32(0), I32(i)])
                source, target = (outside, inside) if loads else (inside, outside)
                builder.store(builder.load(source, align=1), target, align=1)

        def emit(context, builder, sig, args):
            where, stride = pointer(builder, args[1], I8), args[2]
            if CHECKED:
                variable = cgutils.alloca_once(builder, ir.ArrayType(row, n_rows))
                where = builder.bitcast(variable, I8.as_pointer())
                apart = I64(4 * row.count)
                if loads:
                    copy(builder, args[1], stride, variable)
                _instruction(builder, name, numbers[:1], where, apart)
                if not loads:
                    copy(builder, args[1], stride, variable)
            else:
                _instruction(builder, name, numbers[:1], where, stride)
            return context.get_dummy_value()

        return types.void(register, types.int64, types.int64, rows, words), emit

    return move


# amx_load(register, address, stride, rows, words): `stride` is in bytes per row.
amx_load, amx_store = _move("tileloadd64"), _move("tilestored64")
amx_stream = _move("tileloaddt164")  # a load that does not evict data from the L1 cache

"""Loads, stores, broadcast loads, gathers and prefetch. Addresses are int64, of any alignment.

Names exist for each element type: `f32_load(addr)` (native width), `f32x16_load(addr)` (16 lanes).
For the last, partial vector of a row, `*_load_n(addr, n)` reads only the first n lanes and sets all
others to 0, and `*_store_n(addr, x, n)` writes only the first n. Loads convert f16 and bf16 to f32.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils, types

from ggml_cpu.kernel import Function
from ggml_cpu.target import ZEN4

from .half import bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16
from .lanes import WORDS as LANES
from .lanes import lane
from .vec import (
    COUNTS,
    ELEMENTS,
    I32,
    I64,
    Vec,
    call,
    constant,
    inlined,
    intrinsic,
    native_count,
    pointer,
    splat,
    suffix,
    vector_names,
    without_literal,
)

WORDS: dict[str, Function] = {}
f32x4, i16x4 = LANES["f32x4"], LANES["i16x4"]


def _load(vec: Vec) -> Function:
    @intrinsic
    def load(typing, addr):
        def emit(context, builder, sig, args):
            return builder.load(pointer(builder, args[0], vec.ir), align=1)

        return vec(types.int64), emit

    return load


def _bcast(vec: Vec) -> Function:
    @intrinsic
    def bcast(typing, addr):
        def emit(context, builder, sig, args):
            one = builder.load(pointer(builder, args[0], ELEMENTS[vec.elem]), align=1)
            return splat(builder, one, vec.ir)

        return vec(types.int64), emit

    return bcast


def _first_lanes(builder: ir.IRBuilder, n: ir.Value, vec: Vec) -> ir.Value:
    """Emit the mask of lanes below the int64 `n`."""
    lanes = ir.Constant(ir.VectorType(I32, vec.n), list(range(vec.n)))
    bound = splat(builder, builder.trunc(n, I32), lanes.type)
    return builder.icmp_signed("<", lanes, bound)


def _is_whole(builder: ir.IRBuilder, n: ir.Value, vec: Vec) -> ir.Value:
    """Emit n >= lanes, the condition for an unmasked access: masked stores are slow."""
    return builder.icmp_signed(">=", n, I64(vec.n))


def _load_n(vec: Vec) -> Function:
    @intrinsic
    def load_n(typing, addr, n):
        def emit(context, builder, sig, args):
            where = pointer(builder, args[0], vec.ir)
            zero = constant(vec.ir, 0.0 if vec.is_float else 0)
            name = f"llvm.masked.load.{suffix(vec.ir)}.p0"
            with builder.if_else(_is_whole(builder, args[1], vec)) as (whole, part):
                with whole:
                    full = builder.load(where, align=1)
                    end_full = builder.block
                with part:
                    mask = _first_lanes(builder, args[1], vec)
                    some = call(builder, name, vec.ir, [where, I32(1), mask, zero])
                    end_some = builder.block
            value = builder.phi(vec.ir)
            value.add_incoming(full, end_full)
            value.add_incoming(some, end_some)
            return value

        return vec(types.int64, types.int64), emit

    return load_n


@intrinsic
def store(typing, addr, x):
    """Store the vector `x` at `addr`."""
    if not isinstance(x, Vec):
        return None

    def emit(context, builder, sig, args):
        builder.store(args[1], pointer(builder, args[0], args[1].type), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, x), emit


@intrinsic
def store_nt(typing, addr, x):
    """Store `x` with a non-temporal store; `addr` must be a multiple of the vector's size."""
    if not isinstance(x, Vec):
        return None

    def emit(context, builder, sig, args):
        where = pointer(builder, args[0], args[1].type)
        written = builder.store(args[1], where, align=x.n * x.bits // 8)
        written.set_metadata("nontemporal", builder.module.add_metadata([I32(1)]))
        return context.get_dummy_value()

    return types.void(types.int64, x), emit


@intrinsic
def store_n(typing, addr, x, n):
    """Store the first `n` lanes of `x` at `addr`."""
    if not isinstance(x, Vec):
        return None

    def emit(context, builder, sig, args):
        where = pointer(builder, args[0], x.ir)
        name = f"llvm.masked.store.{suffix(x.ir)}.p0"
        with builder.if_else(_is_whole(builder, args[2], x)) as (whole, part):
            with whole:
                builder.store(args[1], where, align=1)
            with part:
                mask = _first_lanes(builder, args[2], x)
                call(builder, name, ir.VoidType(), [args[1], where, I32(1), mask])
        return context.get_dummy_value()

    return types.void(types.int64, x, types.int64), emit


def _add_half_words(name: str, widen: Function, narrow: Function) -> None:
    """Add loads and stores of a 16-bit float type, converted to and from f32, to WORDS."""
    native = Vec("i16", native_count("f32"))
    for count, vec in [("", native), *((f"x{n}", Vec("i16", n)) for n in COUNTS)]:
        WORDS[f"{name}{count}_load"] = _widen_load(_load(vec), widen)
        WORDS[f"{name}{count}_load_n"] = _widen_load_n(_load_n(vec), widen)
        WORDS[f"{name}{count}_bcast"] = _widen_load(_bcast(vec), widen)

    @inlined
    def half_store(addr, x):
        store(addr, narrow(x))

    @inlined
    def half_store_n(addr, x, n):
        store_n(addr, narrow(x), n)

    @inlined
    def half_ld(addr):
        return lane(widen(i16x4(LD_U16(addr))), 0)

    @inlined
    def half_st(addr, x):
        ST_U16(addr, lane(narrow(f32x4(x)), 0))

    WORDS[f"ld_{name}"] = half_ld
    WORDS[f"st_{name}"] = half_st
    WORDS[f"{name}_store"] = half_store
    WORDS[f"{name}_store_n"] = half_store_n


def _widen_load(load: Function, widen: Function) -> Function:
    @inlined
    def half_load(addr):
        return widen(load(addr))

    return half_load


def _widen_load_n(load_n: Function, widen: Function) -> Function:
    @inlined
    def half_load_n(addr, n):
        return widen(load_n(addr, n))

    return half_load_n


def _gather(vec: Vec) -> Function:
    @intrinsic
    def gather(typing, base, index):
        """Return base[index[i]] in lane i; `index` is an i32 vector."""
        if not (isinstance(index, Vec) and index.elem == "i32"):
            return None
        result = Vec(vec.elem, index.n)

        def emit(context, builder, sig, args):
            wide = builder.sext(args[1], ir.VectorType(I64, index.n))
            size = constant(wide.type, vec.bits // 8)
            where = builder.add(splat(builder, args[0], wide.type), builder.mul(wide, size))
            kind = ir.VectorType(result.ir.element.as_pointer(), index.n)
            pointers = builder.inttoptr(where, kind)
            mask = constant(ir.VectorType(ir.IntType(1), index.n), 1)
            zero = constant(result.ir, 0.0 if vec.is_float else 0)
            name = f"llvm.masked.gather.{suffix(result.ir)}.v{index.n}p0"
            return call(builder, name, result.ir, [pointers, I32(1), mask, zero])

        return result(types.int64, index), emit

    return gather


def _scalar(name: str, numba_type: types.Type, ir_type: ir.Type, extend: str) -> None:
    """Add the scalar `ld_<name>` and `st_<name>` to WORDS; integers are int64 in registers."""

    @intrinsic
    def ld(typing, addr):
        def emit(context, builder, sig, args):
            value = builder.load(pointer(builder, args[0], ir_type), align=1)
            return getattr(builder, extend)(value, I64) if extend else value

        return numba_type(types.int64), emit

    @intrinsic
    def st(typing, addr, x):
        def emit(context, builder, sig, args):
            value = context.cast(builder, args[1], sig.args[1], numba_type)
            value = builder.trunc(value, ir_type) if extend else value
            builder.store(value, pointer(builder, args[0], ir_type), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, without_literal(x)), emit

    WORDS[f"ld_{name}"] = ld
    WORDS[f"st_{name}"] = st


@intrinsic
def table(typing, data):
    """Return the address of a constant `bytes` object, a lookup table in the compiled code."""
    if not isinstance(data, types.Bytes):
        return None

    def emit(context, builder, sig, args):
        stored = cgutils.create_struct_proxy(data)(context, builder, value=args[0])
        return builder.ptrtoint(stored.data, I64)

    return types.int64(data), emit


# Locality of llvm.prefetch: 3 is the L1 cache, 2 the L2 cache. In Zen 4's L1 cache of 32 KiB,
# prefetched lines evict the columns: with L2, an f16 matmul with 4 columns takes 0.7 of the time.
NEAR = 2 if ZEN4 else 3


def _prefetch(write: int) -> Function:
    @intrinsic
    def fetch(typing, addr):
        def emit(context, builder, sig, args):
            where = pointer(builder, args[0], ir.IntType(8))
            hints = [I32(write), I32(NEAR), I32(1)]
            call(builder, "llvm.prefetch.p0", ir.VoidType(), [where, *hints])
            return context.get_dummy_value()

        return types.void(types.int64), emit

    return fetch


for _name, _vec in vector_names():
    WORDS[f"{_name}_load"] = _load(_vec)
    WORDS[f"{_name}_load_n"] = _load_n(_vec)
    WORDS[f"{_name}_bcast"] = _bcast(_vec)
for _elem in ("f32", "i32", "i64", "f64"):
    WORDS[f"{_elem}_gather"] = _gather(Vec(_elem, 1))
    WORDS[f"{_elem}_store_n"] = store_n
for _name, _bits in (("8", 8), ("16", 16), ("32", 32)):
    _scalar(f"i{_name}", types.int64, ir.IntType(_bits), "sext")
    _scalar(f"u{_name}", types.int64, ir.IntType(_bits), "zext")
LD_U16, ST_U16 = WORDS["ld_u16"], WORDS["st_u16"]
_add_half_words("f16", f16_to_f32, f32_to_f16)
_add_half_words("bf16", bf16_to_f32, f32_to_bf16)
_scalar("i64", types.int64, I64, "")
_scalar("f32", types.float32, ir.FloatType(), "")
_scalar("f64", types.float64, ir.DoubleType(), "")
prefetch = _prefetch(0)
prefetch_write = _prefetch(1)

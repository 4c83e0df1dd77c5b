"""Arithmetic ops: two tensors with broadcasting, a tensor and scalars, rows by index (ADD_ID)."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.faults import in_range
from ggml_cpu.kernel import Function, fn, kernel
from ggml_cpu.kernels._common import (
    F16,
    F32,
    FLOATS,
    Element,
    dense_rows,
    require_all,
    row_address,
    types_are,
)
from ggml_cpu.kernels._map import map_pairs, map_rows


@fn
def add(x, y):
    return x + y


@fn
def sub(x, y):
    return x - y


@fn
def mul(x, y):
    return x * y


@fn
def div(x, y):
    return x / y


def _binary(op: str, apply: Function, a: Element, b: Element) -> None:
    """Declare a kernel for dst = apply(src0, src1); src1 broadcasts in every dimension."""
    name, types = f"{op.lower()}_{a.name}_{b.name}", types_are(a.name, a.name, b.name)

    declare = kernel(op, when=require_all(types, dense_rows), name=name, made=True)
    declare(lambda: map_pairs(apply, a, b))


for _a in FLOATS:
    for _b in FLOATS:
        if F32 in (_a, _b) or _a is _b:
            for _op, _apply in (("ADD", add), ("SUB", sub), ("MUL", mul), ("DIV", div)):
                _binary(_op, _apply, _a, _b)
        if _b in (F32, _a):
            _binary("ADD1", add, _a, _b)


@fn
def scale_and_shift(x, scale, bias):
    return x * scale + bias


@fn
def clamp(x, low, high):
    y = v.select(x < low, low, x)
    return v.select(y > high, high, y)


@fn
def two_params(p):
    return v.op_f32(p, 0), v.op_f32(p, 1)


def _with_numbers(op: str, apply: Function, element: Element) -> None:
    """Declare a kernel for dst = apply(src0, op param 0, op param 1)."""
    rows, name = map_rows(apply, element, two_params), f"{op.lower()}_{element.name}"

    @kernel(op, when=require_all(types_are(element.name, element.name), dense_rows), name=name)
    def with_numbers(p, ith, nth):
        rows(p, ith, nth)


for _e in FLOATS:
    _with_numbers("SCALE", scale_and_shift, _e)
for _e in (F32, F16):
    _with_numbers("CLAMP", clamp, _e)


@fn
def row_by_index(p, r, size):
    """Return the addresses of row r of dst and src0, and of the row of src1 that src2 selects.

    src2 is [n_used, T]. For an index out of range, the third address is src0's row.
    """
    n_used = v.ne(p, 0, 1)
    slot = v.data(p, 3) + r % n_used * v.nb(p, 3, 0) + r // n_used * v.nb(p, 3, 1)
    x, row = row_address(p, 1, r), v.ld_i32(slot)
    y = v.data(p, 2) + row * v.nb(p, 2, 1) if in_range(p, row, v.ne(p, 2, 1)) else x
    return row_address(p, 0, r), x, y


add_chosen = map_pairs(add, F32, F32, rows_of=row_by_index, repeated=0)


@kernel("ADD_ID", when=require_all(types_are("f32", "f32", "f32", "i32"), dense_rows))
def add_id_f32(p, ith, nth):
    add_chosen(p, ith, nth)

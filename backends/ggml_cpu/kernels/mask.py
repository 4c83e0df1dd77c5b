"""TRI, FILL, DIAG_MASK_INF and DIAG_MASK_ZERO."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels._common import (
    F16,
    F32,
    Element,
    dense_rows,
    require_all,
    row_address,
    types_are,
)
from ggml_cpu.kernels._map import PLACES, map_pairs, map_rows
from ggml_cpu.kernels.unary import first_param

f32_rows = require_all(types_are("f32", "f32"), dense_rows)


@fn
def triangle_rows(p, r, size):
    """Return the addresses of row r of dst and src0, and minus the edge column of its triangle.

    Op param 0 is the kind: 0 upper with diagonal, 1 upper, 2 lower with diagonal, 3 lower. The
    edge is the first column of an upper triangle, or the end of a lower triangle.
    """
    i, kind = r % v.ne(p, 0, 1), v.op_i32(p, 0)
    edge = i + 3 - kind if kind >= 2 else i + kind
    return row_address(p, 0, r), row_address(p, 1, r), -edge


@fn
def kept_side(p):
    """Return 1 to keep the columns from the edge on (upper), or -1 to keep those before (lower)."""
    return (v.f32(-1.0 if v.op_i32(p, 0) >= 2 else 1.0),)


@fn
def keep_side(x, place, side):
    return v.select((place + 0.5) * side > 0.0, x, 0.0)


tri_rows = map_pairs(keep_side, F32, PLACES, kept_side, triangle_rows, repeated=0)


@kernel("TRI", when=f32_rows)
def tri_f32(p, ith, nth):
    tri_rows(p, ith, nth)


@fn
def fill_value(x, value):
    return v.f32(value)


def _fill(element: Element) -> None:
    rows, types = map_rows(fill_value, element, first_param), types_are(element.name, element.name)

    @kernel("FILL", when=require_all(types, dense_rows), name=f"fill_{element.name}")
    def fill(p, ith, nth):
        rows(p, ith, nth)


for _e in (F32, F16):
    _fill(_e)


@fn
def diagonal_rows(p, r, size):
    """Return the addresses of row r of dst and src0, and minus its last unmasked column."""
    return row_address(p, 0, r), row_address(p, 1, r), -(v.op_i32(p, 0) + r % v.ne(p, 0, 1))


def _diag_mask(op: str, value: float) -> None:
    @fn
    def mask_value(x, place):
        return v.select(place > 0.0, value, x)

    rows = map_pairs(mask_value, F32, PLACES, rows_of=diagonal_rows, repeated=0)

    @kernel(op, when=f32_rows, name=f"{op.lower()}_f32")
    def diag_mask(p, ith, nth):
        rows(p, ith, nth)


_diag_mask("DIAG_MASK_INF", float("-inf"))
_diag_mask("DIAG_MASK_ZERO", 0.0)

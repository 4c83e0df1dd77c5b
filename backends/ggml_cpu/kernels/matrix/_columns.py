"""Preparing steps of MUL_MAT and MUL_MAT_ID: src1 packed into shared scratch."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.activations import UNIT, UNIT_BYTES, Activations
from ggml_cpu.blocks.tiles import columns_before, tile_of
from ggml_cpu.kernel import Function, Kernel, fn, kernel
from ggml_cpu.quants import activations

KINDS = ("f32", "f16", "bf16")  # of src1, by the number passed to the kernels as extra 0
COLUMNS = 1  # extra: of each product in tiles


@fn
def packed_at(local: int) -> int:
    """Local scratch: a unit as f32, and here, packed."""
    return local + 4 * UNIT


LOCAL = packed_at(0) + UNIT_BYTES


@fn
def units_of(k):
    return (k + UNIT - 1) // UNIT


@fn
def units_of_rows(p):
    """Of all rows of src1."""
    return units_of(v.ne(p, 2, 0)) * v.ne(p, 2, 1) * v.ne(p, 2, 2) * v.ne(p, 2, 3)


@fn
def as_f32(x, stride, kind, n, buffer):
    """Address of the n elements at x as dense f32: x itself, or a converted copy in `buffer`."""
    if kind == 0 and stride == 4:
        return x
    for i in range(n):
        if kind == 0:
            value = v.ld_f32(x + i * stride)
        elif kind == 1:
            value = v.ld_f16(x + i * stride)
        else:
            value = v.ld_bf16(x + i * stride)
        v.st_f32(buffer + 4 * i, value)
    return buffer


@fn
def source(p, i1, i2, i3, start, n, buffer):
    """Elements start.. of a row of src1, as f32."""
    x = v.data(p, 2) + i1 * v.nb(p, 2, 1) + i2 * v.nb(p, 2, 2) + i3 * v.nb(p, 2, 3)
    return as_f32(x + start * v.nb(p, 2, 0), v.nb(p, 2, 0), v.extra(p, 0), n, buffer)


@fn
def unit(p, row, i, buffer):
    """Unit i of a row of all: (its number of elements, these as f32)."""
    n, n2 = v.ne(p, 2, 1), v.ne(p, 2, 2)
    count = min(UNIT, v.ne(p, 2, 0) - UNIT * i)
    return count, source(p, row % n, row // n % n2, row // n // n2, UNIT * i, count, buffer)


def _rows(activations: Activations) -> Kernel:
    """Every row of src1 as a column of its own, dense: column (i3 * ne2 + i2) * ne1 + i1."""
    pack, column_bytes = activations.pack, activations.column_bytes
    unit_bytes = column_bytes(UNIT)

    @kernel(name=f"rows_{activations.name}", reads=(2,))
    def rows(p, ith, nth):
        bytes, buffer = column_bytes(v.ne(p, 2, 0)), v.local(p, ith)
        start, stop = v.split(units_of_rows(p), ith, nth)
        units = units_of(v.ne(p, 2, 0))
        for u in range(start, stop):
            c, i = u // units, u % units
            count, x = unit(p, c, i, buffer)
            pack(x, count, v.shared(p) + c * bytes + i * unit_bytes)

    return rows


def putter(activations: Activations) -> Function:
    """put(packed, size, tile, width, t, last): blocks into column t of a tile, and into the unused
    ones after it where it is the last."""
    spread = activations.spread

    @fn
    def put(packed, size, tile, width, t, last):
        end = width if last else t + 1
        for i in range(t, end):
            spread(packed, size, tile, width, i)

    return put


def _tiles(activations: Activations) -> Kernel:
    """The rows of src1 as columns in tiles, COLUMNS of each product; `padded` are reserved. Threads
    take units of all rows, since the columns of a tile are in the same cache lines.
    """
    pack, put, column_bytes = activations.pack, putter(activations), activations.column_bytes
    unit_bytes = column_bytes(UNIT)

    @kernel(name=f"tiles_{activations.name}", reads=(2,))
    def tiles(p, ith, nth):
        n, bytes = v.extra(p, COLUMNS), column_bytes(v.ne(p, 2, 0))
        buffer = v.local(p, ith)
        packed = packed_at(buffer)
        start, stop = v.split(units_of_rows(p), ith, nth)
        rows = v.ne(p, 2, 1) * v.ne(p, 2, 2) * v.ne(p, 2, 3)
        for u in range(start, stop):
            i, row = u // rows, u % rows
            c = row % n
            count, x = unit(p, row, i, buffer)
            pack(x, count, packed)
            first, width = tile_of(c, n)
            to = v.shared(p) + (columns_before(row // n, n) + first) * bytes
            to += i * unit_bytes * width
            put(packed, column_bytes(count), to, width, c - first, c == n - 1)

    return tiles


ROWS: dict[Activations, Kernel] = {a: _rows(a) for a in activations()}
TILES: dict[Activations, Kernel] = {a: _tiles(a) for a in activations()}

"""Preparation kernels of MUL_MAT and MUL_MAT_ID: pack src1 into shared scratch."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.activations import UNIT, UNIT_BYTES, Activations
from ggml_cpu.blocks.tiles import padded_columns
from ggml_cpu.kernel import Function, Kernel, fn, kernel
from ggml_cpu.kernels._common import ld_float
from ggml_cpu.kernels._units import PER_THREAD
from ggml_cpu.quants import activations
from ggml_cpu.target import LANES, TILE

KIND, COLUMNS = 0, 1  # indices of `extra`: float_kind of src1, columns per product in tiles


@fn
def packed_address(local: int) -> int:
    """Return the address of a packed unit in local scratch; the unit as f32 precedes it."""
    return local + 4 * UNIT


LOCAL = packed_address(0) + UNIT_BYTES
LOCAL_OF_TILES = packed_address(0) + TILE * UNIT_BYTES + 4 * LANES


@fn
def count_units(k):
    return (k + UNIT - 1) // UNIT


@fn
def units_of_rows(p):
    """Return the number of units in all rows of src1."""
    return count_units(v.ne(p, 2, 0)) * v.ne(p, 2, 1) * v.ne(p, 2, 2) * v.ne(p, 2, 3)


@fn
def as_f32(x, stride, kind, n, buffer):
    """Return the address of n elements as dense f32: x itself, or a converted copy in `buffer`."""
    if kind == 0 and stride == 4:
        return x
    for i in range(n):
        v.st_f32(buffer + 4 * i, ld_float(x + i * stride, kind))
    return buffer


@fn
def source(p, i1, i2, i3, start, n, buffer):
    """Return the address of n elements of a row of src1 from `start`, as f32."""
    x = v.data(p, 2) + i1 * v.nb(p, 2, 1) + i2 * v.nb(p, 2, 2) + i3 * v.nb(p, 2, 3)
    return as_f32(x + start * v.nb(p, 2, 0), v.nb(p, 2, 0), v.extra(p, KIND), n, buffer)


@fn
def unit(p, row, i, buffer):
    """Return unit i of a row: (number of elements, their address as f32).

    Rows are numbered over all matrices of src1.
    """
    n, n2 = v.ne(p, 2, 1), v.ne(p, 2, 2)
    count = min(UNIT, v.ne(p, 2, 0) - UNIT * i)
    return count, source(p, row % n, row // n % n2, row // n // n2, UNIT * i, count, buffer)


def _rows(activations: Activations) -> Kernel:
    """Return the kernel that packs each row of src1 to column (i3 * ne2 + i2) * ne1 + i1."""
    pack, column_bytes = activations.pack, activations.column_bytes
    unit_bytes = column_bytes(UNIT)

    @kernel(name=f"rows_{activations.name}", reads=(2,))
    def rows(p, ith, nth):
        bytes, buffer = column_bytes(v.ne(p, 2, 0)), v.local(p, ith)
        start, stop = v.split(units_of_rows(p), ith, nth)
        units = count_units(v.ne(p, 2, 0))
        for u in range(start, stop):
            c, i = u // units, u % units
            count, x = unit(p, c, i, buffer)
            pack(x, count, v.shared(p) + c * bytes + i * unit_bytes)

    return rows


def putter(activations: Activations) -> Function:
    """Return put(packed, size, tile, width, t, last).

    It copies blocks to column t of a tile, and also to the unused columns after it if `last`.
    """
    spread = activations.spread

    @fn
    def put(packed, size, tile, width, t, last):
        end = width if last else t + 1
        for i in range(t, end):
            spread(packed, size, tile, width, i)

    return put


@fn
def side_by_side(packed, n_words, tile):
    """Interleave the words of TILE columns, which are UNIT_BYTES apart, in a tile.

    Up to 4 * LANES bytes past the last column are read.
    """
    for first in range(0, n_words, LANES):
        for c in range(0, TILE, LANES):
            words = v.i32_regs(LANES)
            for t in range(LANES):
                words[t] = v.i32_load(packed + UNIT_BYTES * min(c + t, TILE - 1) + 4 * first)
            v.transpose(words)
            for i in range(LANES):
                if first + i < n_words:
                    v.store_n(tile + 4 * (TILE * (first + i) + c), words[i], TILE - c)


def _tiles(activations: Activations) -> Kernel:
    """Return the kernel that packs the rows of src1 in tiles, COLUMNS per product.

    Space for `padded` columns per product is reserved. The columns of a tile share cache lines, so
    threads split the units of full tiles first, then the units of the remaining rows.
    """
    pack, put, column_bytes = activations.pack, putter(activations), activations.column_bytes
    unit_bytes, in_words = column_bytes(UNIT), activations.together == 1
    find_tile = activations.find_tile

    @fn
    def in_full_tiles(p, n, nth):
        """Return the columns per product to pack as full tiles.

        This is 0 if there are too few units for all threads, or if the format groups words.
        """
        full, rows = n // TILE * TILE, v.ne(p, 2, 1) * v.ne(p, 2, 2) * v.ne(p, 2, 3)
        return full if in_words and units_of_rows(p) >= PER_THREAD * TILE * nth and rows > 0 else 0

    @fn
    def full_tile(p, product, first, i, buffer):
        """Pack unit i of TILE columns of a product from `first`."""
        n, packed, size = v.extra(p, COLUMNS), packed_address(buffer), 0
        for t in range(TILE):
            count, x = unit(p, product * n + first + t, i, buffer)
            pack(x, count, packed + UNIT_BYTES * t)
            size = column_bytes(count)
        to = (padded_columns(product, n) + first) * column_bytes(v.ne(p, 2, 0))
        side_by_side(packed, size // 4, v.shared(p) + to + i * unit_bytes * TILE)

    @fn
    def column(p, product, c, i, buffer):
        """Pack unit i of column c of a product."""
        n, packed = v.extra(p, COLUMNS), packed_address(buffer)
        count, x = unit(p, product * n + c, i, buffer)
        pack(x, count, packed)
        first, width = find_tile(c, n)
        to = (padded_columns(product, n) + first) * column_bytes(v.ne(p, 2, 0))
        to += i * unit_bytes * width
        put(packed, column_bytes(count), v.shared(p) + to, width, c - first, c == n - 1)

    @kernel(name=f"tiles_{activations.name}", reads=(2,))
    def tiles(p, ith, nth):
        n, rows = max(1, v.extra(p, COLUMNS)), v.ne(p, 2, 1) * v.ne(p, 2, 2) * v.ne(p, 2, 3)
        units, products, buffer = count_units(v.ne(p, 2, 0)), rows // n, v.local(p, ith)
        full = in_full_tiles(p, n, nth)
        start, stop = v.split(units * products * (full // TILE), ith, nth)
        for u in range(start, stop):
            t = u // units
            full_tile(p, t // (full // TILE), t % (full // TILE) * TILE, u % units, buffer)
        start, stop = v.split(units * products * (n - full), ith, nth)
        for u in range(start, stop):
            i, c = u // (products * (n - full)), u % (products * (n - full))
            column(p, c // (n - full), full + c % (n - full), i, buffer)

    return tiles


ROWS: dict[Activations, Kernel] = {a: _rows(a) for a in activations()}
TILES: dict[Activations, Kernel] = {a: _tiles(a) for a in activations()}

"""Preparing steps of MUL_MAT and MUL_MAT_ID: src1 packed into shared scratch."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import Kernel, fn, kernel
from ggml_cpu.quants.activations import FORMATS, UNIT, UNIT_BYTES, Activations, spread
from ggml_cpu.quants.tiles import padded, tile_of

KINDS = ("f32", "f16", "bf16")  # of src1, by the number passed to the kernels as extra 0
LOCAL = 4 * UNIT + UNIT_BYTES  # local scratch of these kernels: a unit as f32, and packed


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


def _rows(activations: Activations) -> Kernel:
    """Every row of src1 as a column of its own, dense: column (i3 * ne2 + i2) * ne1 + i1."""
    elements, block_bytes, pack = activations.elements, activations.block_bytes, activations.pack
    unit_bytes = UNIT // elements * block_bytes

    @kernel(name=f"rows_{activations.name}", reads=(2,))
    def rows(p, ith, nth):
        k, n, n2 = v.ne(p, 2, 0), v.ne(p, 2, 1), v.ne(p, 2, 2)
        column_bytes = (k + elements - 1) // elements * block_bytes
        units = (k + UNIT - 1) // UNIT
        start, stop = v.split(units * n * n2 * v.ne(p, 2, 3), ith, nth)
        for u in range(start, stop):
            c, i = u // units, u % units
            count = min(UNIT, k - UNIT * i)
            x = source(p, c % n, c // n % n2, c // n // n2, UNIT * i, count, v.local(p, ith))
            pack(x, count, v.shared(p) + c * column_bytes + i * unit_bytes)

    return rows


@fn
def put(packed, size, tile, width, t, last):
    """Words into column t of a tile, and into the unused ones after it where it is the last."""
    end = width if last else t + 1
    for i in range(t, end):
        spread(packed, size, tile, width, i)


def _tiles(activations: Activations) -> Kernel:
    """The rows of every matrix of src1 in tiles; `padded(ne1)` columns are reserved a matrix."""
    elements, block_bytes, pack = activations.elements, activations.block_bytes, activations.pack
    unit_bytes = UNIT // elements * block_bytes

    @kernel(name=f"tiles_{activations.name}", reads=(2,))
    def tiles(p, ith, nth):
        k, n, n2 = v.ne(p, 2, 0), v.ne(p, 2, 1), v.ne(p, 2, 2)
        column_bytes = (k + elements - 1) // elements * block_bytes
        units = (k + UNIT - 1) // UNIT
        buffer = v.local(p, ith)
        packed = buffer + 4 * UNIT
        start, stop = v.split(units * n * n2 * v.ne(p, 2, 3), ith, nth)
        for u in range(start, stop):
            row, i = u // units, u % units
            matrix, c = row // n, row % n
            count = min(UNIT, k - UNIT * i)
            pack(source(p, c, matrix % n2, matrix // n2, UNIT * i, count, buffer), count, packed)
            first, width = tile_of(c, n)
            to = v.shared(p) + (matrix * padded(n) + first) * column_bytes + i * unit_bytes * width
            size = (count + elements - 1) // elements * block_bytes
            put(packed, size, to, width, c - first, c == n - 1)

    return tiles


ROWS: dict[Activations, Kernel] = {a: _rows(a) for a in FORMATS}
TILES: dict[Activations, Kernel] = {a: _tiles(a) for a in FORMATS}

"""A matrix times many packed columns by registers of the CPU: as tiles_product, in another order.

A panel of a block of steps is unpacked, and stays in the L1 cache while all columns pass by. Their
sums lie side by side until the last step: results lie so far apart that caches have no place for
those of all columns.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks import amx
from ggml_cpu.blocks.amx import ROW, ROWS
from ggml_cpu.blocks.format import Weight
from ggml_cpu.kernel import Function, fn, routine
from ggml_cpu.kernels._products import WORD, column_at, shape_of, store_rows

COLUMNS = 512  # at a time at most
KEPT = 8  # panels, of whose sums there is room
SUMS = (COLUMNS + ROWS) * ROW  # bytes of those of a panel, and of what a narrow tile adds
SUM_BYTES = KEPT * SUMS


def local_bytes(weight: Weight) -> int:
    """Local scratch: sums, and a panel."""
    return SUM_BYTES + weight.panel(weight.k_block)


def source_of(weight: Weight) -> Function:
    """source(w, stride, k, i, element): what `unpack` takes for panel i of a matrix at w, from an
    element on: (address, stride)."""
    rows, block_size, type_size = weight.rows, weight.type.block_size, weight.type.type_size

    @fn
    def in_rows(w, stride, k, i, element):
        return w + i * rows * stride + element // block_size * type_size, stride

    if weight.of_panels is None:
        return in_rows
    panel, step, each = weight.of_panels.panel, weight.of_panels.step, rows // weight.of_panels.rows

    @fn
    def in_panels(w, stride, k, i, element):
        size = panel((k + step - 1) // step)
        return w + i * each * size + panel(element // step), size

    return in_panels


def register_product(weight: Weight, gate: Function | None = None) -> Function:
    """product, as _products.py:tiles_product makes it, of at most KEPT panels.

    gate    gate(unit, d, x, y, n): what becomes of n results x and the values y that lie `beside`
            bytes behind where they go, where `unit` is not 0: these are two more arguments
    """
    unpack, rows, step, k_block = weight.unpack, weight.rows, weight.step, weight.k_block
    source, block_bytes = source_of(weight), weight.activations.block_bytes
    steps_of, column_bytes = shape_of(weight).steps_of, weight.activations.column_bytes
    assert 4 * rows == ROW

    @fn
    def add(panel, steps, k, s, a, c, end, n, sums):
        """Products of `steps` steps, from s on, with columns c..end of n, to their sums."""
        while end - c >= 2 * ROWS:
            tile = a + c * column_bytes(k) + s * block_bytes * ROWS
            others = tile + ROWS * column_bytes(k)
            amx.multiply_two(panel, tile, others, steps, sums, s > 0)
            sums += 2 * ROW * ROWS
            c += 2 * ROWS
        while c < end:
            width = amx.tile_of(c, n)[1]
            tile = a + c * column_bytes(k) + s * block_bytes * width
            amx.multiply(panel, tile, width, steps, sums, s > 0)
            sums += ROW * width
            c += width

    @fn
    def put(sums, m, first, last, c, end, out, stride, order):
        for column in range(c, end):
            to = column_at(out, column, stride, order) + ROW * first
            x = sums + (column - c) * ROW
            for i in range(first, last):
                if m - i * rows >= rows:
                    for j in range(0, ROW, WORD):
                        v.store(to + j, v.f32_load(x + j))
                else:
                    store_rows(x, m - i * rows, to)
                to += ROW
                x += SUMS

    @routine
    def apply(sums, m, first, last, c, end, out, stride, order, unit, beside):
        for column in range(c, end):
            to = column_at(out, column, stride, order)
            for i in range(first, last):
                x, y = sums + (i - first) * SUMS + (column - c) * ROW, to + 4 * rows * i
                gate(unit, y, x, y + beside, min(rows, m - i * rows))

    @fn
    def gated(w, w_stride, k, m, first, last, a, n, out, stride, order, sums, unit, beside):
        """Column c is stored at out + c * stride, or order[c] * stride where `order` is not 0."""
        steps, panel = steps_of(k), sums + SUM_BYTES
        amx.begin()
        for c in range(0, n, COLUMNS):
            end = min(n, c + COLUMNS)
            for s in range(0, steps, k_block):
                count = min(steps - s, k_block)
                for i in range(first, last):
                    src, apart = source(w, w_stride, k, i, s * step)
                    length = min(k - s * step, count * step)
                    unpack(src, apart, min(rows, m - i * rows), length, panel)
                    to = sums + (i - first) * SUMS
                    add(panel, count, k, s, a, c, end, n, to)
            if gate is None or unit == 0:
                put(sums, m, first, last, c, end, out, stride, order)
            else:
                apply(sums, m, first, last, c, end, out, stride, order, unit, beside)
        amx.end()

    @fn
    def product(w, w_stride, k, m, first, last, a, n, out, stride, order, sums):
        gated(w, w_stride, k, m, first, last, a, n, out, stride, order, sums, 0, 0)

    return product if gate is None else gated

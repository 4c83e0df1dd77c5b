"""Multiply a matrix by many packed columns with AMX: tiles_product with another loop order.

A block of steps of one panel is unpacked into the L1 cache, and all columns stream past it. Sums
are contiguous until the last step, because columns of the result are far apart: the caches cannot
hold the results of all columns.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks import amx
from ggml_cpu.blocks.amx import ROW, ROWS
from ggml_cpu.blocks.format import Weight
from ggml_cpu.kernel import Function, fn, routine
from ggml_cpu.kernels._products import WORD, column_address, get_shape, store_rows

COLUMNS = 512  # maximum columns per pass
KEPT = 8  # maximum panels with sums in scratch
SUMS = (COLUMNS + ROWS) * ROW  # bytes of a panel's sums; a narrow tile stores ROWS rows as well
SUM_BYTES = KEPT * SUMS


def local_bytes(weight: Weight) -> int:
    """Return the local scratch bytes: the sums and one unpacked block of a panel."""
    return SUM_BYTES + weight.panel(weight.k_block)


def build_source_address(weight: Weight) -> Function:
    """Return source(w, stride, k, i, element), which gives the (address, stride) for `unpack`.

    They refer to panel i of the matrix at w, from column `element` of its rows on.
    """
    rows, block_size, type_size = weight.rows, weight.type.block_size, weight.type.type_size

    @fn
    def row_source(w, stride, k, i, element):
        return w + i * rows * stride + element // block_size * type_size, stride

    if weight.of_panels is None:
        return row_source
    panel, step, each = weight.of_panels.panel, weight.of_panels.step, rows // weight.of_panels.rows

    @fn
    def panel_source(w, stride, k, i, element):
        size = panel((k + step - 1) // step)
        return w + i * each * size + panel(element // step), size

    return panel_source


def register_product(weight: Weight, gate: Function | None = None) -> Function:
    """Return a `product` with the arguments of tiles_product's, for at most KEPT panels per call.

    Args:
        weight: Weight type with AMX panels.
        gate: gate(unit, d, x, y, n) computes n outputs at d from the results x and the values y,
            which are stored `values_at` bytes after d. With a gate, the product takes two more
            arguments, `unit` and `values_at`; if `unit` is 0, results are stored unchanged.
    """
    unpack, rows, step, k_block = weight.unpack, weight.rows, weight.step, weight.k_block
    source, block_bytes = build_source_address(weight), weight.activations.block_bytes
    count_steps, column_bytes = get_shape(weight).count_steps, weight.activations.column_bytes
    assert 4 * rows == ROW

    @fn
    def add(panel, steps, k, s, a, c, end, n, sums):
        """Add the products of `steps` steps with columns c .. end of n to the sums.

        s: first step; step 0 overwrites the sums.
        """
        while end - c >= 2 * ROWS:
            tile = a + c * column_bytes(k) + s * block_bytes * ROWS
            others = tile + ROWS * column_bytes(k)
            amx.multiply_two(panel, tile, others, steps, sums, s > 0)
            sums += 2 * ROW * ROWS
            c += 2 * ROWS
        while c < end:
            width = amx.find_tile(c, n)[1]
            tile = a + c * column_bytes(k) + s * block_bytes * width
            amx.multiply(panel, tile, width, steps, sums, s > 0)
            sums += ROW * width
            c += width

    @fn
    def put(sums, m, first, last, c, end, out, stride, order):
        for column in range(c, end):
            to = column_address(out, column, stride, order) + ROW * first
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
    def apply(sums, m, first, last, c, end, out, stride, order, unit, values_at):
        for column in range(c, end):
            to = column_address(out, column, stride, order)
            for i in range(first, last):
                x, y = sums + (i - first) * SUMS + (column - c) * ROW, to + 4 * rows * i
                gate(unit, y, x, y + values_at, min(rows, m - i * rows))

    @fn
    def gated_product(
        w, w_stride, k, m, first, last, a, n, out, stride, order, sums, unit, values_at
    ):
        """Multiply panels first .. last of the matrix at w by n packed columns at a.

        Column c is stored at out + c * stride, or at out + order[c] * stride if `order` is not 0.
        """
        steps, panel = count_steps(k), sums + SUM_BYTES
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
                apply(sums, m, first, last, c, end, out, stride, order, unit, values_at)
        amx.end()

    @fn
    def product(w, w_stride, k, m, first, last, a, n, out, stride, order, sums):
        gated_product(w, w_stride, k, m, first, last, a, n, out, stride, order, sums, 0, 0)

    return product if gate is None else gated_product

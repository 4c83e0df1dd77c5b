"""Multiply a matrix by packed columns: the loops shared by MUL_MAT and MUL_MAT_ID.

`tiles_product` builds these loops for one weight type in one layout; they take addresses only.
matrix/mul_mat.py and mul_mat_id.py choose the columns and rows that each thread multiplies.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import Weight
from ggml_cpu.blocks.tiles import WIDTHS, tile_width
from ggml_cpu.kernel import Function, fn
from ggml_cpu.target import LANES, TILE

WORD = 4 * LANES
GROUP_BYTES = 320 << 10  # panels that fit the L2 cache while all columns stream past
SUM_BYTES = 4 * TILE * 2 * LANES  # sums of one tile of columns and one panel


@fn
def store_rows(sums, rows, out):
    """Store the first `rows` sums to `out`."""
    for i in range(0, rows, LANES):
        if rows - i >= LANES:
            v.store(out + 4 * i, v.f32_load(sums + 4 * i))
        else:
            v.store_n(out + 4 * i, v.f32_load(sums + 4 * i), rows - i)


@fn
def add_rows(sums, rows, out):
    """Add the first `rows` sums to the values at `out`."""
    for i in range(0, rows, LANES):
        left = rows - i
        v.store_n(out + 4 * i, v.f32_load(sums + 4 * i) + v.f32_load_n(out + 4 * i, left), left)


@fn
def column_address(out, column, stride, order):
    """Return the address of a column's results: out + i * stride.

    i is `column`, or order[column] if `order` is not 0.
    """
    if order != 0:
        column = v.ld_i32(order + 4 * column)
    return out + column * stride


def any_width(tile: Callable[[int], Function]) -> Function:
    """Return multiply(width, panel, columns, steps, out), which calls the tile of that width."""
    tiles = {width: tile(width) for width in WIDTHS}
    full, four, two, one = tiles[TILE], tiles[4], tiles[2], tiles[1]
    eight = tiles.get(8, four)

    @fn
    def multiply(width, panel, columns, steps, out):
        if width == TILE:
            full(panel, columns, steps, out)
        elif width == 8:
            eight(panel, columns, steps, out)
        elif width == 4:
            four(panel, columns, steps, out)
        elif width == 2:
            two(panel, columns, steps, out)
        else:
            one(panel, columns, steps, out)

    return multiply


@fn
def panels_address(local: int) -> int:
    """Return the address of a group's unpacked panels in local scratch, after the sums."""
    return local + SUM_BYTES


class Shape:
    """Panel sizes of a weight type, as functions for kernels and for the host."""

    def __init__(self, weight: Weight) -> None:
        rows, step, panel, k_block = weight.rows, weight.step, weight.panel, weight.k_block

        @fn
        def count_steps(k: int) -> int:
            return (k + step - 1) // step

        @fn
        def count_panels(m: int) -> int:
            return (m + rows - 1) // rows

        @fn
        def matrix_bytes(k: int, m: int) -> int:
            return panel(count_steps(k)) * count_panels(m)

        @fn
        def unpacked_bytes(k: int) -> int:
            """Return the bytes of a panel unpacked at a time: at most k_block steps."""
            return panel(min(count_steps(k), k_block))

        @fn
        def panels_per_group(k: int) -> int:
            """Return the panels per group: at most GROUP_BYTES, but at least one panel."""
            return max(1, GROUP_BYTES // unpacked_bytes(k))

        def local_bytes(k: int) -> int:
            """Return the local scratch bytes: the sums and a group of unpacked panels."""
            return panels_address(0) + panels_per_group(k) * unpacked_bytes(k)

        self.count_steps, self.count_panels = count_steps, count_panels
        self.panels_per_group, self.matrix_bytes = panels_per_group, matrix_bytes
        self.local_bytes = local_bytes


@cache
def get_shape(weight: Weight) -> Shape:
    """Return the weight's Shape, cached because every variant of every op uses it."""
    return Shape(weight)


@cache
def build_matrix_address(weight: Weight, in_place: bool) -> Function:
    """Return matrix(p, i2, i3): the address of a matrix of src0, in rows or in panels."""
    matrix_bytes = get_shape(weight.of_panels or weight).matrix_bytes

    @fn
    def in_rows(p, i2, i3):
        return v.data(p, 1) + i2 * v.nb(p, 1, 2) + i3 * v.nb(p, 1, 3)

    @fn
    def in_panels(p, i2, i3):
        size = matrix_bytes(v.ne(p, 1, 0), v.ne(p, 1, 1))
        return v.data(p, 1) + (i3 * v.ne(p, 1, 2) + i2) * size

    return in_rows if in_place else in_panels


def tiles_product(weight: Weight, in_place: bool) -> Function:
    """Return product(...), which multiplies panels of a matrix by columns packed in tiles.

    in_place: weights are rows of ggml blocks, unpacked here; otherwise they are repacked panels.
    """
    multiply, unpack, rows = any_width(weight.tile), weight.unpack, weight.rows
    panel_of, k_block = weight.panel, weight.k_block
    step, block_bytes = weight.step, weight.activations.block_bytes
    block_size, type_size = weight.type.block_size, weight.type.type_size
    count_steps, column_bytes = get_shape(weight).count_steps, weight.activations.column_bytes
    grain = max(weight.together, block_size // step)

    @fn
    def steps_at_once(steps):
        """Return the steps per pass, a multiple of `grain`; passes are about equal in size."""
        passes = max(1, (steps + k_block - 1) // k_block)
        most = (steps + passes - 1) // passes
        return max(grain, (most + grain - 1) // grain * grain)

    @fn
    def result_address(row, column, out, stride, order):
        """Return the address of the results of the rows from `row` on for one column."""
        return column_address(out, column, stride, order) + 4 * row

    @fn
    def fetch_places(n, row, c, out, stride, order):
        """Prefetch for writing the cache lines that `put` stores to.

        Another core may have written them last; they arrive while the products are computed.
        """
        for t in range(n):
            to = result_address(row, c + t, out, stride, order)
            for i in range(0, 4 * rows, 64):
                v.prefetch_write(to + i)

    @fn
    def put(sums, m, n, row, c, more, out, stride, order):
        """Store a panel's sums for columns c .. c + n; add them to the results if `more`."""
        left = m - row
        for t in range(n):
            x, to = sums + 4 * rows * t, result_address(row, c + t, out, stride, order)
            if left >= rows:
                if more:
                    for i in range(0, 4 * rows, WORD):
                        v.store(to + i, v.f32_load(x + i) + v.f32_load(to + i))
                else:
                    for i in range(0, 4 * rows, WORD):
                        v.store(to + i, v.f32_load(x + i))
            elif more:
                add_rows(x, left, to)
            else:
                store_rows(x, left, to)

    @fn
    def product(w, w_stride, k, m, first, last, a, n, out, stride, order, local):
        """Multiply panels first .. last of the matrix at w by n packed columns at a.

        k: elements per row; m: rows of the matrix. Column c is stored at out + c * stride, or at
        out + order[c] * stride if `order` is not 0.
        """
        steps = count_steps(k)
        panels = panels_address(local)
        most = steps_at_once(steps)
        for s in range(0, steps, most):
            count = min(steps - s, most)
            panel_bytes = panel_of(count)
            if in_place:
                length = min(k - s * step, count * step)
                for i in range(first, last):
                    src = w + i * rows * w_stride + s * step // block_size * type_size
                    to = panels + (i - first) * panel_bytes
                    unpack(src, w_stride, min(rows, m - i * rows), length, to)
            c = 0
            while c < n:
                width = tile_width(n - c)
                used = min(width, n - c)
                tile = a + c * column_bytes(k) + s * block_bytes * width
                for i in range(first, last):
                    panel = panels + (i - first) * panel_bytes if in_place else w + i * panel_bytes
                    fetch_places(used, i * rows, c, out, stride, order)
                    multiply(width, panel, tile, count, local)
                    put(local, m, used, i * rows, c, s > 0, out, stride, order)
                c += width

    return product

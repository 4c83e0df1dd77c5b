"""MUL_MAT: up to six variants per weight type.

rows:   in place, few columns: every row times every column
tiles:  in place, many columns: rows are unpacked to panels, then multiplied like `panels`
panel:  repacked, one column
panels: repacked, several columns, in tiles
pairs, panel_pairs: in place or repacked, many columns: weights are converted to panels of bf16
        (amx_pairs.py)

Let src0 be [k, m, A2, A3] and src1 [k, n, B2, B3]. A matrix of src0 multiplies B2 / A2 consecutive
matrices of src1. If A2 is 1, these matrices count as one matrix of n * B2 columns. The variants
`rows` and `panel` merge them for every A2. Threads take contiguous parts of the rows of all
matrices.
"""

from __future__ import annotations

from collections.abc import Callable

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.activations import F32
from ggml_cpu.blocks.format import LAYOUT, Weight
from ggml_cpu.blocks.tiles import padded_columns
from ggml_cpu.kernel import Function, Kernel, fn, kernel
from ggml_cpu.kernels._common import FLOAT_NAMES, float_kind
from ggml_cpu.kernels._products import SUM_BYTES, build_matrix_address, get_shape, store_rows
from ggml_cpu.kernels.matrix._columns import COLUMNS, LOCAL, LOCAL_OF_TILES, ROWS, TILES
from ggml_cpu.kernels.matrix._ways import Way, declare
from ggml_cpu.quants import weights
from ggml_py.tensor import Tensor

VALUE = 3  # index of the tensor with the values of a GLU
PARTS = 4  # units of work per thread below which columns are also divided


def refusal(weight: Weight, layout: str, node: Tensor) -> str:
    """Return the reason why a node cannot use this weight type in this layout, or ""."""
    a, b = node.source(0), node.source(1)
    if a.type is not weight.type or a.layout != layout:
        where = f" in layout {layout}" if layout else ""
        return f"needs {weight.type} weights{where}; got {a.type} in {a.layout or 'rows'}"
    if b.type.name not in FLOAT_NAMES:
        return f"needs f32, f16 or bf16 activations; got {b}"
    if not a.has_contiguous_rows():
        return f"needs rows of adjacent elements; {a} has strides {a.nb}"
    return "" if node.is_contiguous() else f"needs a dense result; {node} has strides {node.nb}"


def rows_product(weight: Weight) -> Function:
    """Return `weight.dots` extended to one column; without `dots`, `weight.dot` for one column."""
    dot, dots = weight.dot, weight.dots

    @fn
    def one_column(src, stride, rows, a, apart, columns, n, out):
        dot(src, stride, rows, a, n, out)

    @fn
    def several_columns(src, stride, rows, a, apart, columns, n, out):
        if columns == 1:
            dot(src, stride, rows, a, n, out)
        else:
            dots(src, stride, rows, a, apart, columns, n, out)

    return one_column if dots is None else several_columns


@fn
def copy_rows(sums, rows, out):
    for i in range(rows):
        v.st_f32(out + 4 * i, v.ld_f32(sums + 4 * i))


def columns_each(node: Tensor) -> int:
    """Return the number of columns per product."""
    a, b = node.source(0), node.source(1)
    return b.ne[1] * b.ne[2] if a.ne[2] == 1 else b.ne[1]


def source_kind(node: Tensor) -> tuple[int, int]:
    return float_kind(node.source(1)), columns_each(node)


@fn
def column_parts(n, units, nth, tile):
    """Return the number of parts of n columns; units: work units if columns are not divided."""
    if nth == 1 or units >= PARTS * nth:
        return 1
    return min((n + tile - 1) // tile, (PARTS * nth + units - 1) // units)


@fn
def part_columns(part, parts, n, tile):
    """Return (first column, number of columns) of a part; parts start at full tiles."""
    size = ((n + tile - 1) // tile + parts - 1) // parts * tile
    first = min(n, part * size)
    return first, min(size, n - first)


def _rows(weight: Weight, dense: bool = False) -> None:
    """Declare `rows`: in place, few columns; dense: src1 is contiguous f32 and is not packed."""
    name, at_once, columns_at_once = weight.type.name, weight.dot_rows, weight.dot_columns
    multiply, limit = rows_product(weight), weight.few
    activations, matrix = weight.dot_activations, build_matrix_address(weight, in_place=True)
    prepared, column_bytes = ROWS[activations], activations.column_bytes

    def check(node: Tensor) -> str:
        b = node.source(1)
        if why := refusal(weight, "", node):
            return why
        if dense and not (b.type.name == "f32" and b.is_contiguous()):
            return f"needs dense f32 columns; got {b}"
        n = columns_each(node)
        return "" if n <= limit else f"needs at most {limit} columns; got {n}"

    def scratch(node: Tensor, nth: int) -> tuple[int, int]:
        b = node.source(1)
        columns = b.n_rows * column_bytes(b.ne[0])
        return (0, SUM_BYTES) if dense else (columns, max(LOCAL, SUM_BYTES))

    @kernel(
        "MUL_MAT",
        when=check,
        scratch=scratch,
        prepare=() if dense else (prepared,),
        extra=source_kind,
        rank=2 if dense else 1,
        first=name,
        name=f"mul_mat_{name}_rows{'_dense' if dense else ''}",
    )
    def mul_mat_rows(p, ith, nth):
        k, m, stride = v.ne(p, 1, 0), v.ne(p, 1, 1), v.nb(p, 1, 1)
        a2, n = v.ne(p, 1, 2), v.ne(p, 2, 1) * (v.ne(p, 2, 2) // v.ne(p, 1, 2))
        repeat3 = v.ne(p, 2, 3) // v.ne(p, 1, 3)
        columns = v.data(p, 2) if dense else v.shared(p)
        apart, step, sums = column_bytes(k), v.nb(p, 0, 1), v.local(p, ith)
        pieces = (m + at_once - 1) // at_once
        start, stop = v.split(pieces * a2 * v.ne(p, 2, 3), ith, nth)
        while start < stop:
            i, first = start // pieces, start % pieces
            last = min(pieces, first + stop - start)
            start += last - first
            w = matrix(p, i % a2, i // a2 // repeat3)
            a, out = columns + n * i * apart, v.data(p, 0) + n * i * step
            for r in range(first * at_once, min(m, last * at_once), at_once):
                count = min(at_once, m - r)
                for c in range(0, n, columns_at_once):
                    width = min(columns_at_once, n - c)
                    multiply(w + r * stride, stride, count, a + c * apart, apart, width, k, sums)
                    for j in range(width):
                        copy_rows(sums + 4 * at_once * j, count, out + (c + j) * step + 4 * r)


def _panel(weight: Weight) -> None:
    """Declare `panel`: repacked weights times one column per matrix of src1."""
    prepared = ROWS[weight.activations]
    rows, panel, shape = weight.rows, weight.panel, get_shape(weight)
    count_steps, count_panels = shape.count_steps, shape.count_panels
    column_bytes = weight.activations.column_bytes

    def check(node: Tensor) -> str:
        n = columns_each(node)
        return refusal(weight, LAYOUT, node) or ("" if n == 1 else f"needs one column; got {n}")

    def scratch(node: Tensor, nth: int) -> tuple[int, int]:
        b = node.source(1)
        return b.n_rows * column_bytes(b.ne[0]), max(LOCAL, SUM_BYTES)

    @kernel(
        "MUL_MAT",
        when=check,
        scratch=scratch,
        prepare=(prepared,),
        extra=source_kind,
        rank=1,
        first=weight.type.name,
        name=f"mul_mat_{weight.type.name}_panel",
        made=True,
    )
    def mul_mat_panel():
        multiply, matrix = weight.tile(1), build_matrix_address(weight, in_place=False)

        def multiply_panel(p, ith, nth):
            k, m = v.ne(p, 1, 0), v.ne(p, 1, 1)
            a2, n = v.ne(p, 1, 2), v.ne(p, 2, 2) // v.ne(p, 1, 2)
            repeat3 = v.ne(p, 2, 3) // v.ne(p, 1, 3)
            steps, panels, sums = count_steps(k), count_panels(m), v.local(p, ith)
            apart, step, panel_bytes = column_bytes(k), v.nb(p, 0, 1), panel(steps)
            start, stop = v.split(panels * a2 * v.ne(p, 2, 3), ith, nth)
            while start < stop:
                i, first = start // panels, start % panels
                last = min(panels, first + stop - start)
                start += last - first
                w = matrix(p, i % a2, i // a2 // repeat3)
                a, out = v.shared(p) + n * i * apart, v.data(p, 0) + n * i * step
                for j in range(first, last):
                    for c in range(n):
                        multiply(w + j * panel_bytes, a + c * apart, steps, sums)
                        store_rows(sums, min(rows, m - j * rows), out + c * step + 4 * j * rows)

        return multiply_panel


def _multiply_tiles(way: Way) -> Callable[..., None]:
    """Return the kernel function that computes a thread's part of all products."""
    product, gate_params = way.product, way.gate_params(VALUE)
    matrix, count_panels, panels_per_group = way.matrix, way.count_panels, way.panels_per_group
    column_bytes, tile = way.weight.activations.column_bytes, way.weight.activations.tile

    def multiply_tiles(p, ith, nth):
        k, m, n = v.ne(p, 1, 0), v.ne(p, 1, 1), v.extra(p, COLUMNS)
        b2, stride = v.ne(p, 2, 1) * v.ne(p, 2, 2) // max(1, n), v.nb(p, 0, 1)
        repeat2, repeat3 = b2 // v.ne(p, 1, 2), v.ne(p, 2, 3) // v.ne(p, 1, 3)
        panels = count_panels(m)
        matrices = b2 * v.ne(p, 2, 3)
        parts = column_parts(n, panels * matrices, nth, tile)
        start, stop = v.split(panels * matrices * parts, ith, nth)
        while start < stop:
            first, i = start % panels, start // panels
            last = min(panels, first + min(stop - start, panels_per_group(k)))
            c, count = part_columns(i % parts, parts, n, tile)
            i //= parts
            w = matrix(p, i % b2 // repeat2, i // b2 // repeat3)
            columns = v.shared(p) + (padded_columns(i, n) + c) * column_bytes(k)
            out = v.data(p, 0) + (i * n + c) * stride
            local = v.local(p, ith)
            product(
                w,
                v.nb(p, 1, 1),
                k,
                m,
                first,
                last,
                columns,
                count,
                out,
                stride,
                0,
                local,
                *gate_params(p),
            )
            start += last - first

    return multiply_tiles


def _tiles(way: Way) -> Kernel:
    """Return the kernel of a variant: weights in either layout times columns in tiles."""
    weight = way.weight
    column_bytes = weight.activations.column_bytes

    def check(node: Tensor) -> str:
        return refusal(weight, way.layout, node) or way.why_not(columns_each(node))

    def scratch(node: Tensor, nth: int) -> tuple[int, int]:
        b, n = node.source(1), columns_each(node)
        k = b.ne[0]
        shared = padded_columns(b.n_rows // max(1, n), n) * column_bytes(k)
        return shared + way.reserved_bytes, max(LOCAL_OF_TILES, way.local_bytes(k))

    @kernel(
        "MUL_MAT",
        when=check,
        scratch=scratch,
        prepare=(TILES[weight.activations],),
        extra=source_kind,
        rank=1 if way.least else 0,
        first=weight.type.name,
        name=f"mul_mat_{weight.type.name}_{way.suffix}",
        made=True,
    )
    def mul_mat_tiles():
        return _multiply_tiles(way)

    return mul_mat_tiles


for _weight in weights().values():
    if _weight.dot_activations is F32:
        _rows(_weight, dense=True)
    _rows(_weight)
    if _weight.is_repacked:
        _panel(_weight)
    declare("MUL_MAT", _weight, _tiles)

"""GET_ROWS of floats, of i32, and of quantized weights in place or repacked."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import LAYOUT, Format, Weight
from ggml_cpu.faults import in_range
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels._common import (
    CHUNK,
    F32,
    FLOATS,
    Element,
    count_chunks,
    n_rows,
    require_all,
    row_address,
    types_are,
)
from ggml_cpu.kernels._map import conversion
from ggml_cpu.kernels._moves import copy_bytes
from ggml_cpu.kernels._products import build_matrix_address, get_shape
from ggml_cpu.kernels.rows._dense import rows_dense
from ggml_cpu.quants import formats, weights
from ggml_py.tensor import Tensor


@fn
def source_row(p, r):
    """Return the address of the row of src0 for row r of dst, or 0 if its index is invalid."""
    n1, n2 = v.ne(p, 0, 1), v.ne(p, 0, 2)
    i1, i2, i3 = r % n1, r // n1 % n2, r // (n1 * n2)
    slot = v.data(p, 2) + i1 * v.nb(p, 2, 0) + i2 * v.nb(p, 2, 1) + i3 * v.nb(p, 2, 2)
    row = v.ld_i32(slot)
    if not in_range(p, row, v.ne(p, 1, 1)):
        return 0
    return v.data(p, 1) + row * v.nb(p, 1, 1) + i2 * v.nb(p, 1, 2) + i3 * v.nb(p, 1, 3)


def _get_rows(element: Element) -> None:
    convert, size = conversion(element, F32), element.size

    @kernel(
        "GET_ROWS",
        when=require_all(types_are("f32", element.name, "i32"), rows_dense),
        name=f"get_rows_{element.name}",
    )
    def get_rows(p, ith, nth):
        n = v.ne(p, 0, 0)
        pieces = count_chunks(n)
        start, stop = v.split(n_rows(p, 0) * pieces, ith, nth)
        for u in range(start, stop):
            r, c = u // pieces, u % pieces * CHUNK
            x = source_row(p, r)
            if x != 0:
                convert(row_address(p, 0, r) + 4 * c, x + c * size, min(CHUNK, n - c))


for _e in FLOATS:
    _get_rows(_e)


@kernel("GET_ROWS", when=require_all(types_are("i32", "i32", "i32"), rows_dense))
def get_rows_i32(p, ith, nth):
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        x = source_row(p, r)
        if x != 0:
            copy_bytes(row_address(p, 0, r), x, 4 * v.ne(p, 0, 0))


def _refusal(weight: Weight | Format, layout: str, node: Tensor) -> str:
    a, ids = node.source(0), node.source(1)
    if a.type is not weight.type or a.layout != layout:
        where = f" in layout {layout}" if layout else ""
        return f"needs {weight.type} rows{where}; got {a.type} in {a.layout or 'rows'}"
    if node.type.name != "f32" or ids.type.name != "i32":
        return f"needs an f32 result and i32 ids; got {node} and {ids}"
    if not a.has_contiguous_rows() or node.nb[0] != 4:
        return f"needs rows of adjacent elements; got strides {a.nb} -> {node.nb}"
    return ""


def _in_place(weight: Format) -> None:
    dequantize = weight.dequantize

    def check(node: Tensor) -> str:
        return _refusal(weight, "", node)

    @kernel("GET_ROWS", when=check, name=f"get_rows_{weight.type.name}")
    def get_rows(p, ith, nth):
        start, stop = v.split(n_rows(p, 0), ith, nth)
        for r in range(start, stop):
            x = source_row(p, r)
            if x != 0:
                dequantize(x, v.ne(p, 1, 0), row_address(p, 0, r))


def _declare_repacked(weight: Weight) -> None:
    """Declare GET_ROWS of repacked weights: gather a row from its panel, then dequantize it."""
    dequantize, gather, rows = weight.dequantize, weight.row, weight.rows
    panel_of, count_steps = weight.panel, get_shape(weight).count_steps
    matrix = build_matrix_address(weight, in_place=False)

    def check(node: Tensor) -> str:
        return _refusal(weight, LAYOUT, node)

    def scratch(node: Tensor, nth: int) -> tuple[int, int]:
        return 0, weight.type.row_size(node.source(0).ne[0])

    @kernel("GET_ROWS", when=check, scratch=scratch, name=f"get_rows_{weight.type.name}_panel")
    def get_rows_panel(p, ith, nth):
        n, n1, n2 = v.ne(p, 1, 0), v.ne(p, 0, 1), v.ne(p, 0, 2)
        buffer = v.local(p, ith)
        start, stop = v.split(n_rows(p, 0), ith, nth)
        for r in range(start, stop):
            i1, i2, i3 = r % n1, r // n1 % n2, r // (n1 * n2)
            ids = v.data(p, 2) + i1 * v.nb(p, 2, 0) + i2 * v.nb(p, 2, 1) + i3 * v.nb(p, 2, 2)
            row = v.ld_i32(ids)
            if in_range(p, row, v.ne(p, 1, 1)):
                panel = matrix(p, i2, i3) + row // rows * panel_of(count_steps(n))
                gather(panel, row % rows, n, buffer)
                dequantize(buffer, n, row_address(p, 0, r))


for _format in formats().values():
    _in_place(_format)
for _weight in weights().values():
    if _weight.row is not None:
        _declare_repacked(_weight)

"""GET_ROWS of quantized weights, in place and repacked."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import LAYOUT, Format, Weight
from ggml_cpu.kernel import kernel
from ggml_cpu.kernels.common import n_rows, row_at
from ggml_cpu.kernels.products import Shape, matrix_at
from ggml_cpu.kernels.rows import source_row
from ggml_cpu.quants import formats, weights
from ggml_py.tensor import Tensor


def _refusal(weight: Weight | Format, layout: str, node: Tensor) -> str:
    a, ids = node.src[0], node.src[1]
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

    def when(node: Tensor) -> str:
        return _refusal(weight, "", node)

    @kernel("GET_ROWS", when=when, name=f"get_rows_{weight.type.name}")
    def get_rows(p, ith, nth):
        start, stop = v.split(n_rows(p, 0), ith, nth)
        for r in range(start, stop):
            dequantize(source_row(p, r), v.ne(p, 1, 0), row_at(p, 0, r))


def _repacked(weight: Weight) -> None:
    """A row is gathered from its panel first."""
    dequantize, gather, rows = weight.dequantize, weight.row, weight.rows
    panel_bytes, steps_of = weight.panel_bytes, Shape(weight).steps_of
    matrix = matrix_at(weight, in_place=False)

    def when(node: Tensor) -> str:
        return _refusal(weight, LAYOUT, node)

    def scratch(node: Tensor, nth: int) -> tuple[int, int]:
        return 0, weight.type.row_size(node.src[0].ne[0])

    @kernel(
        "GET_ROWS", when=when, scratch=scratch, name=f"get_rows_{weight.type.name}_panel"
    )  # fmt: skip
    def get_rows_panel(p, ith, nth):
        n, n1, n2 = v.ne(p, 1, 0), v.ne(p, 0, 1), v.ne(p, 0, 2)
        buffer = v.local(p, ith)
        start, stop = v.split(n_rows(p, 0), ith, nth)
        for r in range(start, stop):
            i1, i2, i3 = r % n1, r // n1 % n2, r // (n1 * n2)
            ids = v.data(p, 2) + i1 * v.nb(p, 2, 0) + i2 * v.nb(p, 2, 1) + i3 * v.nb(p, 2, 2)
            row = v.ld_i32(ids)
            panel = matrix(p, i2, i3) + row // rows * steps_of(n) * panel_bytes
            gather(panel, row % rows, n, buffer)
            dequantize(buffer, n, row_at(p, 0, r))


for _format in formats().values():
    _in_place(_format)
for _weight in weights().values():
    if _weight.repacked:
        _repacked(_weight)

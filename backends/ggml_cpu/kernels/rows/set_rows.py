"""SET_ROWS of f32 and f16 rows, to float types and to block types."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import Format
from ggml_cpu.faults import in_range
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels._common import (
    F16,
    F32,
    FLOATS,
    Element,
    float_kind,
    ld_float,
    n_rows,
    require_all,
    row_address,
    types_are,
)
from ggml_cpu.kernels._map import conversion
from ggml_cpu.kernels.rows._dense import rows_dense
from ggml_cpu.quants import formats
from ggml_py.tensor import Tensor

INDICES = ("i64", "i32")


def index_size(node: Tensor) -> tuple[int, ...]:
    return (node.source(1).type.type_size,)


def kind_and_size(node: Tensor) -> tuple[int, ...]:
    """Return the `float_kind` of src0, and the bytes of an index."""
    return float_kind(node.source(0)), *index_size(node)


@fn
def target_row(p, r, size_of_index):
    """Return the address of the row of dst for row r of src0, or 0 if its index is invalid."""
    n1, n2 = v.ne(p, 1, 1), v.ne(p, 1, 2)
    i1, i2, i3 = r % n1, r // n1 % n2, r // (n1 * n2)
    j2, j3 = i2 % v.ne(p, 2, 1), i3 % v.ne(p, 2, 2)
    slot = v.data(p, 2) + i1 * v.nb(p, 2, 0) + j2 * v.nb(p, 2, 1) + j3 * v.nb(p, 2, 2)
    row = v.ld_i32(slot)
    if size_of_index == 8:
        row = v.ld_i64(slot)
    if not in_range(p, row, v.ne(p, 0, 1)):
        return 0
    return v.data(p, 0) + row * v.nb(p, 0, 1) + i2 * v.nb(p, 0, 2) + i3 * v.nb(p, 0, 3)


def _set_rows(source: Element, target: Element) -> None:
    convert = conversion(source, target)

    @kernel(
        "SET_ROWS",
        when=require_all(types_are(target.name, source.name, INDICES), rows_dense),
        extra=index_size,
        name=f"set_rows_{source.name}_{target.name}",
    )
    def set_rows(p, ith, nth):
        start, stop = v.split(n_rows(p, 1), ith, nth)
        for r in range(start, stop):
            d = target_row(p, r, v.extra(p, 0))
            if d != 0:
                convert(d, row_address(p, 1, r), v.ne(p, 1, 0))


for _source in (F32, F16):
    for _target in FLOATS:
        _set_rows(_source, _target)


def _set_rows_of_blocks(format: Format) -> None:
    """Declare SET_ROWS to a block type; f16 rows are first converted to f32, block by block."""
    quantize, size, name = format.quantize, format.type.block_size, format.type.name
    nbytes = format.type.type_size

    @kernel(
        "SET_ROWS",
        when=require_all(types_are(name, ("f32", "f16"), INDICES), rows_dense),
        scratch=lambda node, nth: (0, 4 * size),
        extra=kind_and_size,
        name=f"set_rows_{name}",
    )
    def set_rows(p, ith, nth):
        kind, spare, n = v.extra(p, 0), v.local(p, ith), v.ne(p, 1, 0)
        run = max(n, size) if kind == 0 else size
        start, stop = v.split(n_rows(p, 1), ith, nth)
        for r in range(start, stop):
            row, d = row_address(p, 1, r), target_row(p, r, v.extra(p, 1))
            for c in range(0, n if d != 0 else 0, run):
                x = row
                if kind != 0:
                    x = spare
                    for i in range(size):
                        v.st_f32(spare + 4 * i, ld_float(row + 2 * (c + i), kind))
                quantize(x, run, d + c // size * nbytes)


for _format in formats().values():
    if _format.quantize is not None:
        _set_rows_of_blocks(_format)

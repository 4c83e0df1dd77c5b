"""SET_ROWS: of floats, to floats and to block types."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import Format
from ggml_cpu.faults import in_range
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels._common import F16, F32, FLOATS, Element, both, n_rows, row_at, types_are
from ggml_cpu.kernels._map import conversion
from ggml_cpu.kernels.rows._dense import rows_dense
from ggml_cpu.quants import formats


@fn
def target_row(p, r, size_of_index):
    """Address of the row of dst that row r of src0 goes to; 0 where there is none."""
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


def _set_rows(source: Element, target: Element, index: str, index_size: int) -> None:
    convert = conversion(source, target)

    @kernel(
        "SET_ROWS",
        when=both(types_are(target.name, source.name, index), rows_dense),
        name=f"set_rows_{source.name}_{target.name}_{index}",
    )
    def set_rows(p, ith, nth):
        start, stop = v.split(n_rows(p, 1), ith, nth)
        for r in range(start, stop):
            d = target_row(p, r, index_size)
            if d != 0:
                convert(d, row_at(p, 1, r), v.ne(p, 1, 0))


for _source in (F32, F16):
    for _target in FLOATS:
        for _index, _size in (("i64", 8), ("i32", 4)):
            _set_rows(_source, _target, _index, _size)


def _set_rows_f32(format: Format, index: str, index_size: int) -> None:
    quantize, name = format.quantize, format.type.name

    @kernel(
        "SET_ROWS",
        when=both(types_are(name, "f32", index), rows_dense),
        name=f"set_rows_f32_{name}_{index}",
    )
    def set_rows(p, ith, nth):
        start, stop = v.split(n_rows(p, 1), ith, nth)
        for r in range(start, stop):
            d = target_row(p, r, index_size)
            if d != 0:
                quantize(row_at(p, 1, r), v.ne(p, 1, 0), d)


def _set_rows_f16(format: Format, index: str, index_size: int) -> None:
    """Rows become f32 block by block first."""
    quantize, size, name = format.quantize, format.type.block_size, format.type.name
    ld, nbytes = F16.ld, format.type.type_size

    @kernel(
        "SET_ROWS",
        when=both(types_are(name, "f16", index), rows_dense),
        scratch=lambda node, nth: (0, 4 * size),
        name=f"set_rows_f16_{name}_{index}",
    )
    def set_rows(p, ith, nth):
        spare = v.local(p, ith)
        start, stop = v.split(n_rows(p, 1), ith, nth)
        for r in range(start, stop):
            x, d = row_at(p, 1, r), target_row(p, r, index_size)
            for b in range(v.ne(p, 1, 0) // size if d != 0 else 0):
                for i in range(size):
                    v.st_f32(spare + 4 * i, ld(x + 2 * (b * size + i)))
                quantize(spare, size, d + b * nbytes)


for _format in formats().values():
    if _format.quantize is not None:
        for _index, _size in (("i64", 8), ("i32", 4)):
            _set_rows_f32(_format, _index, _size)
            _set_rows_f16(_format, _index, _size)

"""Selecting, writing and ordering rows."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels.common import (
    CHUNK,
    F16,
    F32,
    FLOATS,
    both,
    chunks_of,
    dense_rows,
    n_rows,
    row_at,
    types_are,
)
from ggml_cpu.kernels.moves import copy_bytes

RUN = 16  # rows of a merge sort's first, insertion-sorted runs


def rows_dense(node):
    """dst and src0 have dense rows; the index may have any strides."""
    for t in (node, node.src[0]):
        if not t.has_contiguous_rows():
            return f"needs dense rows; {t} has elements {t.nb[0]} bytes apart"
    return ""


@fn
def source_row(p, r):
    """Address of the row of src0 that row r of dst is taken from."""
    n1, n2 = v.ne(p, 0, 1), v.ne(p, 0, 2)
    i1, i2, i3 = r % n1, r // n1 % n2, r // (n1 * n2)
    slot = v.data(p, 2) + i1 * v.nb(p, 2, 0) + i2 * v.nb(p, 2, 1) + i3 * v.nb(p, 2, 2)
    row = v.ld_i32(slot)
    return v.data(p, 1) + row * v.nb(p, 1, 1) + i2 * v.nb(p, 1, 2) + i3 * v.nb(p, 1, 3)


def _get_rows(element):
    load, load_n, size = element.load, element.load_n, element.size

    @kernel(
        "GET_ROWS",
        when=both(types_are("f32", element.name, "i32"), rows_dense),
        name=f"get_rows_{element.name}",
    )
    def get_rows(p, ith, nth):
        n = v.ne(p, 0, 0)
        pieces = chunks_of(n)
        start, stop = v.split(n_rows(p, 0) * pieces, ith, nth)
        for u in range(start, stop):
            r, c = u // pieces, u % pieces * CHUNK
            d, s = row_at(p, 0, r), source_row(p, r)
            end = min(n, c + CHUNK)
            while c + v.LANES <= end:
                v.store(d + 4 * c, load(s + c * size))
                c += v.LANES
            if c < end:
                v.store_n(d + 4 * c, load_n(s + c * size, end - c), end - c)


for _e in FLOATS:
    _get_rows(_e)


@kernel("GET_ROWS", when=both(types_are("i32", "i32", "i32"), rows_dense))
def get_rows_i32(p, ith, nth):
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        copy_bytes(row_at(p, 0, r), source_row(p, r), 4 * v.ne(p, 0, 0))


@fn
def target_row(p, r, size_of_index):
    """Address of the row of dst that row r of src0 goes to."""
    n1, n2 = v.ne(p, 1, 1), v.ne(p, 1, 2)
    i1, i2, i3 = r % n1, r // n1 % n2, r // (n1 * n2)
    j2, j3 = i2 % v.ne(p, 2, 1), i3 % v.ne(p, 2, 2)
    slot = v.data(p, 2) + i1 * v.nb(p, 2, 0) + j2 * v.nb(p, 2, 1) + j3 * v.nb(p, 2, 2)
    row = v.ld_i32(slot)
    if size_of_index == 8:
        row = v.ld_i64(slot)
    return v.data(p, 0) + row * v.nb(p, 0, 1) + i2 * v.nb(p, 0, 2) + i3 * v.nb(p, 0, 3)


def _set_rows(source, target, index, index_size):
    load_n, from_size = source.load_n, source.size
    store_n, to_size = target.store_n, target.size

    @kernel(
        "SET_ROWS",
        when=both(types_are(target.name, source.name, index), rows_dense),
        name=f"set_rows_{source.name}_{target.name}_{index}",
    )
    def set_rows(p, ith, nth):
        n = v.ne(p, 1, 0)
        start, stop = v.split(n_rows(p, 1), ith, nth)
        for r in range(start, stop):
            d, s = target_row(p, r, index_size), row_at(p, 1, r)
            for c in range(0, n, v.LANES):
                store_n(d + c * to_size, load_n(s + c * from_size, n - c), n - c)


for _source in (F32, F16):
    for _target in FLOATS:
        for _index, _size in (("i64", 8), ("i32", 4)):
            _set_rows(_source, _target, _index, _size)


@fn
def before(x, i, j, descending):
    """Whether element i of the row goes before element j; equal ones keep their order."""
    a, b = v.ld_f32(x + 4 * i), v.ld_f32(x + 4 * j)
    if descending:
        return a > b or (a == b and i < j)
    return a < b or (a == b and i < j)


@fn
def insertion_sort(x, idx, start, stop, descending):
    for i in range(start, stop):
        j = i
        while j > start and before(x, i, v.ld_i32(idx + 4 * (j - 1)), descending):
            v.st_i32(idx + 4 * j, v.ld_i32(idx + 4 * (j - 1)))
            j -= 1
        v.st_i32(idx + 4 * j, i)


@fn
def merge(x, a, b, start, middle, stop, descending):
    """Merge the sorted a[start:middle] and a[middle:stop] into b[start:stop]."""
    i, j = start, middle
    for k in range(start, stop):
        left = v.ld_i32(a + 4 * i) if i < middle else 0
        right = v.ld_i32(a + 4 * j) if j < stop else 0
        if j >= stop or (i < middle and before(x, left, right, descending)):
            v.st_i32(b + 4 * k, left)
            i += 1
        else:
            v.st_i32(b + 4 * k, right)
            j += 1


@fn
def sort_indices(x, idx, spare, n, descending):
    """Indices 0..n-1 of the row x in sorted order; returns where they ended up, idx or spare."""
    for start in range(0, n, RUN):
        insertion_sort(x, idx, start, min(n, start + RUN), descending)
    width = RUN
    while width < n:
        for start in range(0, n, 2 * width):
            middle, stop = min(n, start + width), min(n, start + 2 * width)
            merge(x, idx, spare, start, middle, stop, descending)
        idx, spare = spare, idx
        width *= 2
    return idx


def index_rows(node, nth):
    """Two index arrays of a row for each thread."""
    return 0, 8 * node.src[0].ne[0]


@kernel("ARGSORT", when=both(types_are("i32", "f32"), dense_rows), scratch=index_rows)
def argsort_f32(p, ith, nth):
    n = v.ne(p, 0, 0)
    a = v.local(p, ith)
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        found = sort_indices(row_at(p, 1, r), a, a + 4 * n, n, v.op_i32(p, 0) == 1)
        copy_bytes(row_at(p, 0, r), found, 4 * n)

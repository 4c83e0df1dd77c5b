"""CPY, CONT, DUP of float and integer types, with type conversion."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels._common import (
    CHUNK,
    FLOATS,
    Element,
    count_chunks,
    n_rows,
    row_address,
    run_stop,
    types_are,
)
from ggml_cpu.kernels._map import conversion
from ggml_cpu.kernels._moves import TILE, copy_bytes


@fn
def element_address(p, k, i):
    """Return the address of element i of tensor k, in ggml's element order."""
    n0 = v.ne(p, k, 0)
    return row_address(p, k, i // n0) + i % n0 * v.nb(p, k, 0)


@fn
def same_ne(p):
    """Return True if dst and src0 have the same shape."""
    return (
        v.ne(p, 0, 0) == v.ne(p, 1, 0)
        and v.ne(p, 0, 1) == v.ne(p, 1, 1)
        and v.ne(p, 0, 2) == v.ne(p, 1, 2)
        and v.ne(p, 0, 3) == v.ne(p, 1, 3)
    )


def _copy(source: Element, target: Element) -> None:
    """Declare CPY, CONT and DUP between two float types.

    Elements are copied in ggml's order; the shapes may differ.
    """
    ld, from_size, st, to_size = source.ld, source.size, target.st, target.size
    run = conversion(source, target)

    @fn
    def short_rows(p, ith, nth):
        """Copy between equal shapes; rows are dense on both sides and at most CHUNK long."""
        r, stop = v.split(n_rows(p, 0), ith, nth)
        while r < stop:
            d, s, end = row_address(p, 0, r), row_address(p, 1, r), run_stop(p, 0, r, stop)
            for i in range(end - r):
                run(d + i * v.nb(p, 0, 1), s + i * v.nb(p, 1, 1), v.ne(p, 0, 0))
            r = end

    @fn
    def rows_to_rows(p, ith, nth, n, inner):
        """Copy n elements in pieces of `inner` elements, contiguous on both sides."""
        pieces = count_chunks(inner)
        start, stop = v.split(n // inner * pieces, ith, nth)
        for u in range(start, stop):
            c = u % pieces * CHUNK
            i = u // pieces * inner
            d = element_address(p, 0, i) + c * to_size
            run(d, element_address(p, 1, i) + c * from_size, min(CHUNK, inner - c))

    @fn
    def copy_transposed(p, ith, nth):
        """Copy between equal shapes in squares of TILE x TILE.

        The source is dense along dimension 1, dst along dimension 0.
        """
        n0, n1 = v.ne(p, 1, 0), v.ne(p, 1, 1)
        b0 = v.nb(p, 1, 0)
        d1 = v.nb(p, 0, 1)
        per = (n1 + TILE - 1) // TILE
        start, stop = v.split(per * v.ne(p, 1, 2) * v.ne(p, 1, 3), ith, nth)
        for u in range(start, stop):
            first = u % per * TILE
            d, s = (
                row_address(p, 0, u // per * n1 + first),
                row_address(p, 1, u // per * n1 + first),
            )
            rows = min(TILE, n1 - first)
            for i0 in range(0, n0, TILE):
                for i in range(i0, min(n0, i0 + TILE)):
                    for j in range(rows):
                        st(d + j * d1 + i * to_size, ld(s + i * b0 + j * from_size))

    @kernel(
        "CPY",
        "CONT",
        "DUP",
        when=types_are(target.name, source.name),
        name=f"copy_{source.name}_{target.name}",
    )
    def copy(p, ith, nth):
        n = v.ne(p, 0, 0) * n_rows(p, 0)
        d0, s0 = v.ne(p, 0, 0), v.ne(p, 1, 0)
        dense_d = v.nb(p, 0, 0) == to_size or d0 == 1
        dense_s = v.nb(p, 1, 0) == from_size or s0 == 1
        inner = min(d0, s0)
        if dense_d and dense_s and 1 < d0 <= CHUNK and same_ne(p):
            short_rows(p, ith, nth)
        elif dense_d and dense_s and inner > 1 and d0 % inner == 0 and s0 % inner == 0:
            rows_to_rows(p, ith, nth, n, inner)
        elif dense_d and v.nb(p, 1, 1) == from_size and same_ne(p):
            copy_transposed(p, ith, nth)
        else:
            start, stop = v.split(n, ith, nth)
            for i in range(start, stop):
                st(element_address(p, 0, i), ld(element_address(p, 1, i)))


for _source in FLOATS:
    for _target in FLOATS:
        _copy(_source, _target)


def _copy_words(name: str, size: int) -> None:
    """Declare bytewise CPY, CONT and DUP of an integer type of 1, 2, 4 or 8 bytes."""

    @kernel("CPY", "CONT", "DUP", when=types_are(name, name), name=f"copy_{name}")
    def copy(p, ith, nth):
        start, stop = v.split(v.ne(p, 0, 0) * n_rows(p, 0), ith, nth)
        for i in range(start, stop):
            copy_bytes(element_address(p, 0, i), element_address(p, 1, i), size)


for _name, _size in (("i8", 1), ("i16", 2), ("i32", 4), ("i64", 8)):
    _copy_words(_name, _size)


@kernel("CPY", when=types_are("i64", "i32"))
def cpy_i32_i64(p, ith, nth):
    start, stop = v.split(v.ne(p, 0, 0) * n_rows(p, 0), ith, nth)
    for i in range(start, stop):
        v.st_i64(element_address(p, 0, i), v.ld_i32(element_address(p, 1, i)))


@kernel("CPY", when=types_are("i32", "i64"))
def cpy_i64_i32(p, ith, nth):
    start, stop = v.split(v.ne(p, 0, 0) * n_rows(p, 0), ith, nth)
    for i in range(start, stop):
        v.st_i32(element_address(p, 0, i), v.ld_i64(element_address(p, 1, i)))


@kernel("CPY", when=types_are("i32", "f32"))
def cpy_f32_i32(p, ith, nth):
    start, stop = v.split(v.ne(p, 0, 0) * n_rows(p, 0), ith, nth)
    for i in range(start, stop):
        v.st_i32(element_address(p, 0, i), int(v.ld_f32(element_address(p, 1, i))))


@kernel("CPY", when=types_are("f32", "i32"))
def cpy_i32_f32(p, ith, nth):
    start, stop = v.split(v.ne(p, 0, 0) * n_rows(p, 0), ith, nth)
    for i in range(start, stop):
        v.st_f32(element_address(p, 0, i), v.ld_i32(element_address(p, 1, i)))

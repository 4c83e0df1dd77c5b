"""Ops that move elements: copy and convert, write into a window."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels.common import (
    CHUNK,
    FLOATS,
    both,
    chunks_of,
    dense_rows,
    n_rows,
    row_at,
    run_stop,
    types_are,
)
from ggml_cpu.kernels.moves import TILE, copy_bytes


@fn
def element_at(p, k, i):
    """Address of element i of tensor k, elements counted in ggml's order."""
    n0 = v.ne(p, k, 0)
    return row_at(p, k, i // n0) + i % n0 * v.nb(p, k, 0)


@fn
def same_ne(p):
    """Whether dst and src0 have the same shape."""
    return (
        v.ne(p, 0, 0) == v.ne(p, 1, 0)
        and v.ne(p, 0, 1) == v.ne(p, 1, 1)
        and v.ne(p, 0, 2) == v.ne(p, 1, 2)
        and v.ne(p, 0, 3) == v.ne(p, 1, 3)
    )


def _copy(source, target):
    """CPY, CONT, DUP between two float types; elements are taken in order, shapes may differ."""
    load, load_n, ld, from_size = source.load, source.load_n, source.ld, source.size
    store, store_n, st, to_size = target.store, target.store_n, target.st, target.size

    @fn
    def run(d, s, n):
        """n elements, dense on both sides."""
        i = 0
        while i + v.LANES <= n:
            store(d + i * to_size, load(s + i * from_size))
            i += v.LANES
        if i < n:
            store_n(d + i * to_size, load_n(s + i * from_size, n - i), n - i)

    @fn
    def short_rows(p, ith, nth):
        """Same shapes, rows dense on both sides and no longer than CHUNK."""
        r, stop = v.split(n_rows(p, 0), ith, nth)
        while r < stop:
            d, s, end = row_at(p, 0, r), row_at(p, 1, r), run_stop(p, 0, r, stop)
            for i in range(end - r):
                run(d + i * v.nb(p, 0, 1), s + i * v.nb(p, 1, 1), v.ne(p, 0, 0))
            r = end

    @fn
    def rows_to_rows(p, ith, nth, n, inner):
        """Pieces of `inner` elements lie dense on both sides; n elements in all."""
        pieces = chunks_of(inner)
        start, stop = v.split(n // inner * pieces, ith, nth)
        for u in range(start, stop):
            c = u % pieces * CHUNK
            i = u // pieces * inner
            d = element_at(p, 0, i) + c * to_size
            run(d, element_at(p, 1, i) + c * from_size, min(CHUNK, inner - c))

    @fn
    def transposed(p, ith, nth):
        """Same shapes, the source dense along dimension 1: squares of TILE x TILE."""
        n0, n1 = v.ne(p, 1, 0), v.ne(p, 1, 1)
        b0 = v.nb(p, 1, 0)
        d1 = v.nb(p, 0, 1)
        per = (n1 + TILE - 1) // TILE
        start, stop = v.split(per * v.ne(p, 1, 2) * v.ne(p, 1, 3), ith, nth)
        for u in range(start, stop):
            first = u % per * TILE
            d, s = row_at(p, 0, u // per * n1 + first), row_at(p, 1, u // per * n1 + first)
            rows = min(TILE, n1 - first)
            for i0 in range(0, n0, TILE):
                for i in range(i0, min(n0, i0 + TILE)):
                    for j in range(rows):
                        st(d + j * d1 + i * to_size, ld(s + i * b0 + j * from_size))

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
            transposed(p, ith, nth)
        else:
            start, stop = v.split(n, ith, nth)
            for i in range(start, stop):
                st(element_at(p, 0, i), ld(element_at(p, 1, i)))

    for op in ("CPY", "CONT", "DUP"):
        name = f"{op.lower()}_{source.name}_{target.name}"
        kernel(op, when=types_are(target.name, source.name), name=name)(copy)


for _source in FLOATS:
    for _target in FLOATS:
        _copy(_source, _target)


def _copy_words(name, size):
    """Integer types of 1, 2, 4 or 8 bytes, copied bit by bit."""

    def copy(p, ith, nth):
        start, stop = v.split(v.ne(p, 0, 0) * n_rows(p, 0), ith, nth)
        for i in range(start, stop):
            copy_bytes(element_at(p, 0, i), element_at(p, 1, i), size)

    for op in ("CPY", "CONT", "DUP"):
        kernel(op, when=types_are(name, name), name=f"{op.lower()}_{name}")(copy)


for _name, _size in (("i8", 1), ("i16", 2), ("i32", 4), ("i64", 8)):
    _copy_words(_name, _size)


@kernel("CPY", when=types_are("i64", "i32"))
def cpy_i32_i64(p, ith, nth):
    start, stop = v.split(v.ne(p, 0, 0) * n_rows(p, 0), ith, nth)
    for i in range(start, stop):
        v.st_i64(element_at(p, 0, i), v.ld_i32(element_at(p, 1, i)))


@kernel("CPY", when=types_are("i32", "i64"))
def cpy_i64_i32(p, ith, nth):
    start, stop = v.split(v.ne(p, 0, 0) * n_rows(p, 0), ith, nth)
    for i in range(start, stop):
        v.st_i32(element_at(p, 0, i), v.ld_i64(element_at(p, 1, i)))


@kernel("CPY", when=types_are("i32", "f32"))
def cpy_f32_i32(p, ith, nth):
    start, stop = v.split(v.ne(p, 0, 0) * n_rows(p, 0), ith, nth)
    for i in range(start, stop):
        v.st_i32(element_at(p, 0, i), int(v.ld_f32(element_at(p, 1, i))))


@kernel("CPY", when=types_are("f32", "i32"))
def cpy_i32_f32(p, ith, nth):
    start, stop = v.split(v.ne(p, 0, 0) * n_rows(p, 0), ith, nth)
    for i in range(start, stop):
        v.st_f32(element_at(p, 0, i), v.ld_i32(element_at(p, 1, i)))


@fn
def window_row(p, r):
    """Address in dst of the row that row r of src1 falls on (op params: nb1, nb2, nb3, offset)."""
    n1, n2 = v.ne(p, 2, 1), v.ne(p, 2, 2)
    i1, i2, i3 = r % n1, r // n1 % n2, r // (n1 * n2)
    shift = i1 * v.op_i32(p, 0) + i2 * v.op_i32(p, 1) + i3 * v.op_i32(p, 2)
    return v.data(p, 0) + v.op_i32(p, 3) + shift


@fn
def copy_base(p, ith, nth):
    """dst = src0 unless it is the same memory (the in-place form)."""
    if v.data(p, 0) != v.data(p, 1):
        start, stop = v.split(n_rows(p, 0), ith, nth)
        for r in range(start, stop):
            copy_bytes(row_at(p, 0, r), row_at(p, 1, r), 4 * v.ne(p, 0, 0))


def words(node):
    return "" if node.type.name in ("f32", "i32") else f"needs f32 or i32; got {node.type}"


@kernel()
def window_base(p, ith, nth):
    copy_base(p, ith, nth)


@kernel("SET", when=both(words, dense_rows), prepare=(window_base,))
def set_words(p, ith, nth):
    start, stop = v.split(n_rows(p, 2), ith, nth)
    for r in range(start, stop):
        copy_bytes(window_row(p, r), row_at(p, 2, r), 4 * v.ne(p, 2, 0))


@kernel("ACC", when=both(types_are("f32", "f32", "f32"), dense_rows), prepare=(window_base,))
def acc_f32(p, ith, nth):
    n = v.ne(p, 2, 0)
    start, stop = v.split(n_rows(p, 2), ith, nth)
    for r in range(start, stop):
        d, s = window_row(p, r), row_at(p, 2, r)
        for c in range(0, n, v.LANES):
            y = v.f32_load_n(d + 4 * c, n - c) + v.f32_load_n(s + 4 * c, n - c)
            v.store_n(d + 4 * c, y, n - c)

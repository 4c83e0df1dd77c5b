"""Ops that move elements: copy and convert, concatenate, repeat, pad, write into a window."""

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
    row_repeated,
    run_stop,
    types_are,
)

TILE = 16  # side of the squares a transposing copy goes through


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


@fn
def copy_bytes(d, s, n):
    """n bytes, words first."""
    i = 0
    while i + 64 <= n:
        v.store(d + i, v.i8x64_load(s + i))
        i += 64
    while i + 8 <= n:
        v.st_i64(d + i, v.ld_i64(s + i))
        i += 8
    if i + 4 <= n:
        v.st_i32(d + i, v.ld_i32(s + i))
        i += 4
    while i < n:
        v.st_i8(d + i, v.ld_i8(s + i))
        i += 1


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
def transpose_words(d, d1, s, s0, n0, n1):
    """d[j, i] = s[i, j] for 4-byte elements: n0 x n1 of them, s dense along j, d along i."""
    for j0 in range(0, n1, TILE):
        for i0 in range(0, n0, TILE):
            for i in range(i0, min(n0, i0 + TILE)):
                for j in range(j0, min(n1, j0 + TILE)):
                    v.st_i32(d + j * d1 + 4 * i, v.ld_i32(s + i * s0 + 4 * j))


def sizes_1_to_8(node):
    size = node.type.type_size
    return "" if node.type.block_size == 1 and size in (1, 2, 4, 8) else "needs plain elements"


def unit_sizes(node):
    return node.type.type_size, node.type.block_size


@kernel("CONCAT", extra=unit_sizes)
def concat(p, ith, nth):
    """Each source is copied into its part of dst, plane by plane (dimensions 0 and 1)."""
    dim = v.op_i32(p, 0)
    for k in range(1, 3):
        shift = 0
        if k == 2:
            shift = v.ne(p, 1, dim) * v.nb(p, 0, dim)
            if dim == 0:
                shift = shift // v.extra(p, 1)
        concat_part(p, k, shift, ith, nth)


ROWS = 16  # rows a thread takes at a time


@fn
def concat_part(p, k, shift, ith, nth):
    """A row is of elements, or of blocks."""
    size = v.extra(p, 0)
    n0, n1, n2, n3 = v.ne(p, k, 0) // v.extra(p, 1), v.ne(p, k, 1), v.ne(p, k, 2), v.ne(p, k, 3)
    b0, b1, d0 = v.nb(p, k, 0), v.nb(p, k, 1), v.nb(p, 0, 0)
    blocks = (n1 + ROWS - 1) // ROWS
    start, stop = v.split(blocks * n2 * n3, ith, nth)
    for u in range(start, stop):
        first = u % blocks * ROWS
        i2, i3 = u // blocks % n2, u // (blocks * n2)
        d = v.data(p, 0) + shift + first * v.nb(p, 0, 1) + i2 * v.nb(p, 0, 2) + i3 * v.nb(p, 0, 3)
        s = v.data(p, k) + first * b1 + i2 * v.nb(p, k, 2) + i3 * v.nb(p, k, 3)
        rows = min(ROWS, n1 - first)
        if b0 == size and d0 == size:
            for r in range(rows):
                copy_bytes(d + r * v.nb(p, 0, 1), s + r * b1, n0 * size)
        elif size == 4 and b1 == 4 and d0 == 4:
            transpose_words(d, v.nb(p, 0, 1), s, b0, n0, rows)
        else:
            for r in range(rows):
                for i in range(n0):
                    copy_bytes(d + r * v.nb(p, 0, 1) + i * d0, s + r * b1 + i * b0, size)


@kernel("REPEAT", when=both(sizes_1_to_8, dense_rows), extra=lambda node: (node.type.type_size,))
def repeat(p, ith, nth):
    n, m, m1 = v.ne(p, 0, 0), v.ne(p, 1, 0), v.ne(p, 1, 1)
    size = v.extra(p, 0)
    r, stop = v.split(n_rows(p, 0), ith, nth)
    while r < stop:  # rows of dimension 1
        d, s, end = row_at(p, 0, r), row_repeated(p, 1, r), run_stop(p, 0, r, stop)
        i1 = r % v.ne(p, 0, 1) % m1
        s -= i1 * v.nb(p, 1, 1)
        for i in range(end - r):
            for c in range(0, n, m):
                copy_bytes(d + i * v.nb(p, 0, 1) + c * size, s + i1 * v.nb(p, 1, 1), m * size)
            i1 = i1 + 1 if i1 + 1 < m1 else 0
        r = end


@fn
def fill_words(d, n):
    """n words of 0."""
    c = 0
    while c + v.LANES <= n:
        v.store(d + 4 * c, v.f32(0.0))
        c += v.LANES
    if c < n:
        v.store_n(d + 4 * c, v.f32(0.0), n - c)


def not_circular(node):
    return "needs zero padding" if node.param("circular") else ""


@kernel("PAD", when=both(types_are("f32", "f32"), not_circular))
def pad_f32(p, ith, nth):
    n0, n1, n2 = v.ne(p, 0, 0), v.ne(p, 0, 1), v.ne(p, 0, 2)
    m0, m1, m2, m3 = v.ne(p, 1, 0), v.ne(p, 1, 1), v.ne(p, 1, 2), v.ne(p, 1, 3)
    lp0, lp1, lp2, lp3 = v.op_i32(p, 0), v.op_i32(p, 2), v.op_i32(p, 4), v.op_i32(p, 6)
    b0 = v.nb(p, 1, 0)
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        i1, i2, i3 = r % n1 - lp1, r // n1 % n2 - lp2, r // (n1 * n2) - lp3
        d = row_at(p, 0, r)
        if 0 <= i1 < m1 and 0 <= i2 < m2 and 0 <= i3 < m3:
            s = v.data(p, 1) + i1 * v.nb(p, 1, 1) + i2 * v.nb(p, 1, 2) + i3 * v.nb(p, 1, 3)
            fill_words(d, lp0)
            if b0 == 4:
                copy_bytes(d + 4 * lp0, s, 4 * m0)
            else:
                for i in range(m0):
                    v.st_f32(d + 4 * (lp0 + i), v.ld_f32(s + i * b0))
            fill_words(d + 4 * (lp0 + m0), n0 - lp0 - m0)
        else:
            fill_words(d, n0)


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

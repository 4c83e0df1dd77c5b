"""Arithmetic: two tensors with broadcast, a tensor and numbers, rows chosen by index."""

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
    row_repeated,
    types_are,
)


@fn
def add(x, y):
    return x + y


@fn
def sub(x, y):
    return x - y


@fn
def mul(x, y):
    return x * y


@fn
def div(x, y):
    return x / y


def _pieces(apply, a, b):
    """d = apply(x, y) for n elements, and the same with one element of y for all."""
    a_load, a_load_n, a_size = a.load, a.load_n, a.size
    b_load, b_load_n, b_size = b.load, b.load_n, b.size
    d_store, d_store_n = a.store, a.store_n

    @fn
    def piece(d, x, y, n):
        i = 0
        while i + v.LANES <= n:
            d_store(d + i * a_size, apply(a_load(x + i * a_size), b_load(y + i * b_size)))
            i += v.LANES
        if i < n:
            z = apply(a_load_n(x + i * a_size, n - i), b_load_n(y + i * b_size, n - i))
            d_store_n(d + i * a_size, z, n - i)

    @fn
    def piece_of_one(d, x, y, n):
        w = v.f32(v.lane(b_load_n(y, 1), 0))
        i = 0
        while i + v.LANES <= n:
            d_store(d + i * a_size, apply(a_load(x + i * a_size), w))
            i += v.LANES
        if i < n:
            d_store_n(d + i * a_size, apply(a_load_n(x + i * a_size, n - i), w), n - i)

    return piece, piece_of_one


def _binary(op, apply, a, b):
    """dst = apply(src0, src1), src1 repeated to dst's shape in every dimension."""
    piece, piece_of_one = _pieces(apply, a, b)
    a_size, b_size = a.size, b.size

    @kernel(
        op,
        when=both(types_are(a.name, a.name, b.name), dense_rows),
        name=f"{op.lower()}_{a.name}_{b.name}",
    )
    def binary(p, ith, nth):
        n, m = v.ne(p, 0, 0), v.ne(p, 2, 0)
        step = m if 1 < m < n else CHUNK
        pieces = (n + step - 1) // step
        start, stop = v.split(n_rows(p, 0) * pieces, ith, nth)
        for u in range(start, stop):
            r, c = u // pieces, u % pieces * step
            count = min(step, n - c)
            d = row_at(p, 0, r) + c * a_size
            x = row_at(p, 1, r) + c * a_size
            y = row_repeated(p, 2, r)
            if m == 1:
                piece_of_one(d, x, y, count)
            elif m < n:
                piece(d, x, y, count)
            else:
                piece(d, x, y + c * b_size, count)


for _op, _apply in (("ADD", add), ("SUB", sub), ("MUL", mul), ("DIV", div)):
    for _a in FLOATS:
        for _b in FLOATS:
            if F32 in (_a, _b) or _a is _b:
                _binary(_op, _apply, _a, _b)


def _scale(element):
    load, load_n, size = element.load, element.load_n, element.size
    store, store_n = element.store, element.store_n

    @kernel(
        "SCALE",
        when=both(types_are(element.name, element.name), dense_rows),
        name=f"scale_{element.name}",
    )
    def scale(p, ith, nth):
        n = v.ne(p, 0, 0)
        s, bias = v.op_f32(p, 0), v.op_f32(p, 1)
        pieces = chunks_of(n)
        start, stop = v.split(n_rows(p, 0) * pieces, ith, nth)
        for u in range(start, stop):
            r, c = u // pieces, u % pieces * CHUNK
            d, x = row_at(p, 0, r), row_at(p, 1, r)
            end = min(n, c + CHUNK)
            while c + v.LANES <= end:
                store(d + c * size, load(x + c * size) * s + bias)
                c += v.LANES
            if c < end:
                store_n(d + c * size, load_n(x + c * size, end - c) * s + bias, end - c)


for _e in FLOATS:
    _scale(_e)


def _clamp(element):
    load_n, store_n, size = element.load_n, element.store_n, element.size

    @kernel(
        "CLAMP",
        when=both(types_are(element.name, element.name), dense_rows),
        name=f"clamp_{element.name}",
    )
    def clamp(p, ith, nth):
        n = v.ne(p, 0, 0)
        low, high = v.op_f32(p, 0), v.op_f32(p, 1)
        start, stop = v.split(n_rows(p, 0), ith, nth)
        for r in range(start, stop):
            d, x = row_at(p, 0, r), row_at(p, 1, r)
            for c in range(0, n, v.LANES):
                y = load_n(x + c * size, n - c)
                y = v.select(y < low, low, y)
                store_n(d + c * size, v.select(y > high, high, y), n - c)


for _e in (F32, F16):
    _clamp(_e)


add_piece, _ = _pieces(add, F32, F32)


@kernel("ADD_ID", when=both(types_are("f32", "f32", "f32", "i32"), dense_rows))
def add_id_f32(p, ith, nth):
    n_used = v.ne(p, 0, 1)
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        slot = v.data(p, 3) + r % n_used * v.nb(p, 3, 0) + r // n_used * v.nb(p, 3, 1)
        y = v.data(p, 2) + v.ld_i32(slot) * v.nb(p, 2, 1)
        add_piece(row_at(p, 0, r), row_at(p, 1, r), y, v.ne(p, 0, 0))

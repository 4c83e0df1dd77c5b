"""The loops of elementwise kernels: rows in pieces, of whole vectors and a masked tail.

`apply(x, *params)` and `apply(x, y, *params)` make a vector of f32 from vectors of f32; `params(p)`
is read once, from the node's parameters. What these return is the body of a kernel. Where a vector
is made of more than two, or makes more than one, `map_vectors` leaves reading and writing to it.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import Function, fn
from ggml_cpu.kernels._common import (
    CHUNK,
    F32,
    Element,
    chunks_of,
    n_rows,
    row_at,
    row_repeated,
    runs_of,
)


@fn
def no_params(p):
    return ()


def run_of_one(apply: Function, source: Element, target: Element) -> Function:
    """d = apply(x) for n elements that follow each other."""
    load, load_n, x_size = source.load, source.load_n, source.size
    store, store_n, d_size = target.store, target.store_n, target.size

    @fn
    def run(d, x, n, given):
        i = 0
        while i + v.LANES <= n:
            store(d + i * d_size, apply(load(x + i * x_size), *given))
            i += v.LANES
        if i < n:
            store_n(d + i * d_size, apply(load_n(x + i * x_size, n - i), *given), n - i)

    return run


@fn
def same(x):
    return x


def conversion(source: Element, target: Element) -> Function:
    """convert(d, x, n): n elements of another type."""
    run = run_of_one(same, source, target)

    @fn
    def convert(d, x, n):
        run(d, x, n, ())

    return convert


def to_f32(element: Element) -> Function:
    """to_f32(src, n, dst): as the functions that dequantize."""
    convert = conversion(element, F32)

    @fn
    def dequantize(src, n, dst):
        convert(dst, src, n)

    return dequantize


def map_rows(apply: Function, a: Element, params: Function = no_params) -> Function:
    """dst = apply(src0), both of type a and of one shape."""
    run, size = run_of_one(apply, a, a), a.size

    @fn
    def rows(p, ith, nth):
        given = params(p)
        n, runs = runs_of(p, size)
        pieces = chunks_of(n)
        start, stop = v.split(runs * pieces, ith, nth)
        for u in range(start, stop):
            r, c = u // pieces, u % pieces * CHUNK
            d, x = row_at(p, 0, r) + c * size, row_at(p, 1, r) + c * size
            run(d, x, min(CHUNK, n - c), given)

    return rows


@fn
def two_sources(p, r, size):
    """Rows of dst, of src0 and of src1, which is repeated."""
    return row_at(p, 0, r), row_at(p, 1, r), row_repeated(p, 2, r)


def run_of_two(apply: Function, a: Element, b: Element) -> Function:
    """d = apply(x, y) for n elements that follow each other; d and x of type a, y of type b."""
    load, load_n, store, store_n, size = a.load, a.load_n, a.store, a.store_n, a.size
    second, second_n, y_size = b.load, b.load_n, b.size

    @fn
    def run(d, x, y, n, given):
        i = 0
        while i + v.LANES <= n:
            store(d + i * size, apply(load(x + i * size), second(y + i * y_size), *given))
            i += v.LANES
        if i < n:
            z = apply(load_n(x + i * size, n - i), second_n(y + i * y_size, n - i), *given)
            store_n(d + i * size, z, n - i)

    return run


def map_pairs(
    apply: Function,
    a: Element,
    b: Element,
    params: Function = no_params,
    rows_of: Function = two_sources,
    repeated: int = 2,
    over: int = 0,
) -> Function:
    """dst = apply(x, y), dst and x of type a, y of type b, for the rows of tensor `over`.

    rows_of(p, r, size) is where dst, x and y of row r begin. y has as many elements as tensor
    `repeated` in a row, which are repeated along that of `over`.
    """
    run, run_with_one = run_of_two(apply, a, b), run_of_one(apply, a, a)
    load_n, size, y_size = b.load_n, a.size, b.size

    @fn
    def pairs(p, ith, nth):
        given = params(p)
        n, m = v.ne(p, over, 0), v.ne(p, repeated, 0)
        step = m if 1 < m < n else CHUNK
        pieces = (n + step - 1) // step
        start, stop = v.split(n_rows(p, over) * pieces, ith, nth)
        for u in range(start, stop):
            r, c = (u // pieces, u % pieces * step) if pieces > 1 else (u, 0)
            d, x, y = rows_of(p, r, size)
            d, x = d + c * size, x + c * size
            if m == 1:
                y_vector = v.f32(v.lane(load_n(y, 1), 0))
                run_with_one(d, x, min(step, n - c), (y_vector, *given))
            elif m < n:
                run(d, x, y, min(step, n - c), given)
            else:
                run(d, x, y + c * y_size, min(step, n - c), given)

    return pairs


@fn
def place(at):
    """The places from number `at` on, as f32: where they begin at 0, signs are exact."""
    return v.to_f32(v.iota() + at)


@fn
def place_n(at, n):
    return place(at)


@fn
def nothing(at, x):
    """Places are not written."""


# y of `map_pairs` where what becomes of an element depends on its column: an address is a number.
PLACES = Element("place", 1, place, place_n, nothing, nothing, place, nothing)


def map_vectors(step: Function, params: Function = no_params) -> Function:
    """step(p, i, n, *params) for each vector of dst's elements: from element i on, of which n are
    left. No tensor has gaps.
    """

    @fn
    def vectors(p, ith, nth):
        given = params(p)
        start, stop = v.split_by(v.ne(p, 0, 0) * n_rows(p, 0), v.LANES, ith, nth)
        for i in range(start, stop, v.LANES):
            step(p, i, stop - i, *given)

    return vectors

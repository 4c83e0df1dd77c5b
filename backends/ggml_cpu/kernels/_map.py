"""Loops of elementwise kernels: pieces of rows, each processed in full vectors and a masked tail.

`apply(x, *params)` and `apply(x, y, *params)` compute an f32 vector from f32 vectors. `params(p)`
reads the node's op params once. The `map_*` functions return the body of a kernel. For more than
two input vectors, or more than one output vector, use `map_vectors`: its `step` loads and stores.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import Function, fn
from ggml_cpu.kernels._common import (
    CHUNK,
    F32,
    Element,
    contiguous_runs,
    count_chunks,
    n_rows,
    row_address,
    row_repeated,
)


@fn
def no_params(p):
    return ()


def run_of_one(apply: Function, source: Element, target: Element) -> Function:
    """Return run(d, x, n, given): d = apply(x, *given) for n contiguous elements."""
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
def identity(x):
    return x


def conversion(source: Element, target: Element) -> Function:
    """Return convert(d, x, n): convert n contiguous elements from `source` to `target`."""
    run = run_of_one(identity, source, target)

    @fn
    def convert(d, x, n):
        run(d, x, n, ())

    return convert


def to_f32(element: Element) -> Function:
    """Return dequantize(src, n, dst) for a float type, with the arguments of Format.dequantize."""
    convert = conversion(element, F32)

    @fn
    def dequantize(src, n, dst):
        convert(dst, src, n)

    return dequantize


def map_rows(apply: Function, a: Element, params: Function = no_params) -> Function:
    """Return a kernel body: dst = apply(src0), both of type `a` and of the same shape."""
    run, size = run_of_one(apply, a, a), a.size

    @fn
    def rows(p, ith, nth):
        given = params(p)
        n, runs = contiguous_runs(p, size)
        pieces = count_chunks(n)
        start, stop = v.split(runs * pieces, ith, nth)
        for u in range(start, stop):
            r, c = u // pieces, u % pieces * CHUNK
            d, x = row_address(p, 0, r) + c * size, row_address(p, 1, r) + c * size
            run(d, x, min(CHUNK, n - c), given)

    return rows


@fn
def two_sources(p, r, size):
    """Return the addresses of row r of dst and src0, and of the src1 row that broadcasts to dst."""
    return row_address(p, 0, r), row_address(p, 1, r), row_repeated(p, 2, r)


def run_of_two(apply: Function, a: Element, b: Element) -> Function:
    """Return run(d, x, y, n, given): d = apply(x, y, *given) for n contiguous elements.

    d and x have type `a`, y has type `b`.
    """
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
    """Return a kernel body: dst = apply(x, y) for each row of tensor `over`.

    dst and x have type `a`, y has type `b`. rows_of(p, r, size) returns the addresses of row r of
    dst, x and y; `size` is the bytes of an element of type `a`. A row of y has the length of a row
    of tensor `repeated` and repeats along the row of `over`.
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
    """Return the indices at, at + 1, ... as f32, rounded; 0 and signs are exact.

    A kernel that compares columns with a limit therefore starts from the negative limit.
    """
    return v.to_f32(v.iota() + at)


@fn
def place_n(at, n):
    return place(at)


@fn
def skip_store(at, x):
    """Ignore the store: indices are read only."""


# `b` of `map_pairs` for ops that depend on an element's column: the address of y is an index.
PLACES = Element("place", 1, place, place_n, skip_store, skip_store, place, skip_store)


def map_vectors(step: Function, params: Function = no_params) -> Function:
    """Return a kernel body that calls step(p, i, n, *params) for each vector of dst.

    i: first element of the vector; n: elements left for the thread, possibly more than LANES. All
    tensors must be contiguous.
    """

    @fn
    def vectors(p, ith, nth):
        given = params(p)
        start, stop = v.split_aligned(v.ne(p, 0, 0) * n_rows(p, 0), v.LANES, ith, nth)
        for i in range(start, stop, v.LANES):
            step(p, i, stop - i, *given)

    return vectors

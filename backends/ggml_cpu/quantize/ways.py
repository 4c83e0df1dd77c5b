"""The two ways in which a block is made, without importance of its values and with it, for types
that differ in what they do then."""

from __future__ import annotations

from ggml_cpu.kernel import Function, fn
from ggml_cpu.quantize.lanes import W, X, at, mul, put, sum_of_squares, weigh


def by_squares(n: int, share: float, put_all: Function) -> tuple[Function, Function]:
    """Return plain, weighted: put_all(m) makes a block of n values from the weights in W, which are
    the squares; or importance times the root of a square and of `share` of the mean of all."""

    @fn
    def plain(m):
        for i in range(n):
            put(m + W, i, mul(at(m + X, i), at(m + X, i)))
        put_all(m)

    @fn
    def weighted(m):
        weigh(m + X, m + W, n, sum_of_squares(m + X, n) * (share / n))
        put_all(m)

    return plain, weighted


def by_steps(
    searched: Function, searched_weighted: Function, share: float, put_all: Function
) -> tuple[Function, Function]:
    """Return plain, weighted: put_all(m, d, d_min) makes a block of the levels, scales and minima
    that are searched; `share` as above."""

    @fn
    def plain(m):
        d, d_min = searched(m)
        put_all(m, d, d_min)

    @fn
    def weighted(m):
        d, d_min = searched_weighted(m, share)
        put_all(m, d, d_min)

    return plain, weighted

"""Pairs of plain and weighted quantizers that share most of their code."""

from __future__ import annotations

from ggml_cpu.kernel import Function, fn
from ggml_cpu.quantize.lanes import W, X, at, mul, put, sum_of_squares, weigh


def by_squares(n: int, share: float, put_all: Function) -> tuple[Function, Function]:
    """Return (plain, weighted); put_all(m) quantizes blocks of n values with the weights in W.

    Plain weights are x^2. Others are importance * sqrt(x^2 + share * mean of all x^2).
    """

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
    """Return (plain, weighted); both search, then put_all(m, d, d_min) stores the blocks.

    `searched` and `searched_weighted` store levels, scales and minima; `share`: see `by_squares`.
    """

    @fn
    def plain(m):
        d, d_min = searched(m)
        put_all(m, d, d_min)

    @fn
    def weighted(m):
        d, d_min = searched_weighted(m, share)
        put_all(m, d, d_min)

    return plain, weighted

"""Pairs of plain and weighted quantizers that share most of their code."""

from __future__ import annotations

from ggml_cpu.kernel import Function, fn
from ggml_cpu.quantize.lanes import W, X, load_lanes, mul, put, sum_of_squares, weigh


def build_square_pair(n: int, share: float, put_all: Function) -> tuple[Function, Function]:
    """Return (encode_plain, encode_weighted) for blocks of n values.

    put_all(m) quantizes blocks with the weights in W.

    Plain weights are x^2. Others are importance * sqrt(x^2 + share * mean of all x^2).
    """

    @fn
    def encode_plain(m):
        for i in range(n):
            put(m + W, i, mul(load_lanes(m + X, i), load_lanes(m + X, i)))
        put_all(m)

    @fn
    def encode_weighted(m):
        weigh(m + X, m + W, n, sum_of_squares(m + X, n) * (share / n))
        put_all(m)

    return encode_plain, encode_weighted


def build_search_pair(
    search_plain: Function, search_weighted: Function, share: float, put_all: Function
) -> tuple[Function, Function]:
    """Return (encode_plain, encode_weighted); both search, then put_all(m, d, d_min) stores.

    `search_plain` and `search_weighted` store levels, scales and minima. `share`: see
    `build_square_pair`.
    """

    @fn
    def encode_plain(m):
        d, d_min = search_plain(m)
        put_all(m, d, d_min)

    @fn
    def encode_weighted(m):
        d, d_min = search_weighted(m, share)
        put_all(m, d, d_min)

    return encode_plain, encode_weighted

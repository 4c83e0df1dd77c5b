"""Activations with parameters of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels.common import (
    CHUNK,
    FLOATS,
    Element,
    both,
    chunks_of,
    dense_rows,
    n_rows,
    row_at,
    runs_of,
    types_are,
)
from ggml_cpu.kernels.elementwise import expm1, silu


@fn
def leaky_relu(p, x):
    return v.select(x > 0.0, x, x * v.op_f32(p, 0))


@fn
def xielu(p, x):
    positive = x * x * v.op_f32(p, 2)
    negative = (expm1(v.vmin(x, v.op_f32(p, 4))) - x) * v.op_f32(p, 1)
    return v.select(x > 0.0, positive, negative) + x * v.op_f32(p, 3)


def _activation(op: str, apply: Callable[..., Any], element: Element) -> None:
    """dst = apply(p, src0) for one float type."""
    load, load_n, size = element.load, element.load_n, element.size
    store, store_n = element.store, element.store_n
    when = both(types_are(element.name, element.name), dense_rows)

    @kernel(op, when=when, name=f"{op.lower()}_{element.name}")
    def activation(p, ith, nth):
        n, runs = runs_of(p, size)
        pieces = chunks_of(n)
        start, stop = v.split(runs * pieces, ith, nth)
        for u in range(start, stop):
            r, i = u // pieces, u % pieces * CHUNK
            d, x = row_at(p, 0, r), row_at(p, 1, r)
            end = min(n, i + CHUNK)
            while i + v.LANES <= end:
                store(d + i * size, apply(p, load(x + i * size)))
                i += v.LANES
            if i < end:
                store_n(d + i * size, apply(p, load_n(x + i * size, end - i)), end - i)


def _swiglu_clamp(element: Element) -> None:
    load, load_n, size = element.load, element.load_n, element.size
    store, store_n = element.store, element.store_n
    when = both(types_are(element.name, element.name, element.name), dense_rows)

    @fn
    def gated(g, x, limit):
        return silu(v.vmin(g, limit)) * v.vmin(v.vmax(x, -limit), limit)

    @kernel("SWIGLU_CLAMP", when=when, name=f"swiglu_clamp_{element.name}")
    def swiglu_clamp(p, ith, nth):
        n, limit = v.ne(p, 0, 0), v.op_f32(p, 3)
        pieces = chunks_of(n)
        start, stop = v.split(n_rows(p, 0) * pieces, ith, nth)
        for u in range(start, stop):
            r, i = u // pieces, u % pieces * CHUNK
            d, g, x = row_at(p, 0, r), row_at(p, 1, r), row_at(p, 2, r)
            end = min(n, i + CHUNK)
            while i + v.LANES <= end:
                store(d + i * size, gated(load(g + i * size), load(x + i * size), limit))
                i += v.LANES
            if i < end:
                y = gated(load_n(g + i * size, end - i), load_n(x + i * size, end - i), limit)
                store_n(d + i * size, y, end - i)


for _element in FLOATS:
    _activation("LEAKY_RELU", leaky_relu, _element)
    _activation("XIELU", xielu, _element)
    _swiglu_clamp(_element)

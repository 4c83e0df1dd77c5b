"""Activations with parameters of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels.common import FLOATS, Element, both, dense_rows, n_rows, row_at, types_are
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
    load_n, store_n, size = element.load_n, element.store_n, element.size
    when = both(types_are(element.name, element.name), dense_rows)

    @kernel(op, when=when, name=f"{op.lower()}_{element.name}")
    def activation(p, ith, nth):
        n = v.ne(p, 0, 0)
        start, stop = v.split(n_rows(p, 0), ith, nth)
        for r in range(start, stop):
            d, x = row_at(p, 0, r), row_at(p, 1, r)
            for i in range(0, n, v.LANES):
                store_n(d + i * size, apply(p, load_n(x + i * size, n - i)), n - i)


def _swiglu_clamp(element: Element) -> None:
    load_n, store_n, size = element.load_n, element.store_n, element.size
    when = both(types_are(element.name, element.name, element.name), dense_rows)

    @kernel("SWIGLU_CLAMP", when=when, name=f"swiglu_clamp_{element.name}")
    def swiglu_clamp(p, ith, nth):
        n, limit = v.ne(p, 0, 0), v.op_f32(p, 3)
        start, stop = v.split(n_rows(p, 0), ith, nth)
        for r in range(start, stop):
            d, g, x = row_at(p, 0, r), row_at(p, 1, r), row_at(p, 2, r)
            for i in range(0, n, v.LANES):
                gate = silu(v.vmin(load_n(g + i * size, n - i), limit))
                y = v.vmin(v.vmax(load_n(x + i * size, n - i), -limit), limit)
                store_n(d + i * size, gate * y, n - i)


for _element in FLOATS:
    _activation("LEAKY_RELU", leaky_relu, _element)
    _activation("XIELU", xielu, _element)
    _swiglu_clamp(_element)

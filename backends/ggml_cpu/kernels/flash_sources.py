"""Types of keys and values: how rows of them become panels of f32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.kernels.common import FLOATS, Element
from ggml_cpu.quants.interleave import interleave_words, interleaver
from ggml_cpu.quants.weight import Weight, weights
from ggml_cpu.target import LANES

WORD = 4 * LANES  # bytes of a vector


class Source(NamedTuple):
    """One type of keys or values.

    size    bytes of an element
    panel   panel(src, stride, rows, n, dst, spare): up to LANES rows of n elements side by side,
            f32 [n][LANES]; rows past the last repeat it. spare: room for LANES rows of f32
    row     row(src, n, dst, step, spare): one row as f32 vectors, `step` bytes apart
    rounded rounded(x, spare): an f32 vector rounded to the type; as it is for quantized types
    """

    name: str
    size: float
    panel: Callable[..., Any]
    row: Callable[..., Any]
    rounded: Callable[..., Any]


def _float(element: Element) -> Source:
    load, load_n, store, size = element.load, element.load_n, element.store, element.size

    @fn
    def words(address):
        return v.as_i32(load(address))

    @fn
    def words_n(address, n):
        return v.as_i32(load_n(address, n))

    interleave = interleaver(words, words_n, size)

    @fn
    def panel(src, stride, rows, n, dst, spare):
        interleave(src, stride, rows, n, dst, WORD)

    @fn
    def row(src, n, dst, step, spare):
        for i in range(0, n, LANES):
            v.store(dst + i // LANES * step, load_n(src + i * size, n - i))

    @fn
    def rounded(x, spare):
        store(spare, x)
        return load(spare)

    return Source(element.name, size, panel, row, rounded)


def _quantized(weight: Weight) -> Source:
    dequantize = weight.dequantize
    size = weight.type.type_size / weight.type.block_size

    @fn
    def panel(src, stride, rows, n, dst, spare):
        for r in range(rows):
            dequantize(src + r * stride, n, spare + 4 * n * r)
        interleave_words(spare, 4 * n, rows, n, dst, WORD)

    @fn
    def row(src, n, dst, step, spare):
        dequantize(src, n, spare)
        for i in range(0, n, LANES):
            v.store(dst + i // LANES * step, v.f32_load_n(spare + 4 * i, n - i))

    @fn
    def rounded(x, spare):
        return x

    return Source(weight.type.name, size, panel, row, rounded)


FLOAT_SOURCES = tuple(_float(e) for e in FLOATS)
QUANTIZED_SOURCES = tuple(_quantized(w) for w in weights().values() if w.dequantize is not None)

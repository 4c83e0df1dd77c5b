"""Outer products, a scalar added, labels counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels.common import (
    CHUNK,
    F32,
    FLOATS,
    Element,
    both,
    chunks_of,
    dense_rows,
    n_rows,
    row_at,
    types_are,
)
from ggml_cpu.quants import weights
from ggml_py.tensor import Tensor


def _float_row(element: Element) -> Callable[..., Any]:
    load_n, size = element.load_n, element.size

    @fn
    def to_f32(src, n, dst):
        for i in range(0, n, v.LANES):
            v.store_n(dst + 4 * i, load_n(src + i * size, n - i), n - i)

    return to_f32


def source_row(node: Tensor, nth: int) -> tuple[int, int]:
    """Local scratch: a row of src0 as f32."""
    return 0, 4 * node.ne[0]


@fn
def axpy(d, w, x, n):
    """d += w * x."""
    for i in range(0, n, v.LANES):
        y = v.fma(v.f32_load_n(x + 4 * i, n - i), v.f32(w), v.f32_load_n(d + 4 * i, n - i))
        v.store_n(d + 4 * i, y, n - i)


def _out_prod(type_name: str, to_f32: Callable[..., Any]) -> None:
    def when(node: Tensor) -> str:
        a, b = node.src
        if (a.type.name, b.type.name) != (type_name, "f32"):
            return f"needs {type_name} and f32; got {a.type} and {b.type}"
        if a.layout or not a.has_contiguous_rows():
            return f"needs dense rows of {type_name}; got {a} with strides {a.nb} {a.layout}"
        return ""

    @kernel("OUT_PROD", when=when, scratch=source_row, name=f"out_prod_{type_name}")
    def out_prod(p, ith, nth):
        """Each thread has some rows of every matrix; rows of src0 are added to them in turn."""
        n, m, b2 = v.ne(p, 0, 0), v.ne(p, 0, 1), v.ne(p, 0, 2)
        repeat2, repeat3 = b2 // v.ne(p, 1, 2), v.ne(p, 0, 3) // v.ne(p, 1, 3)
        x, (start, stop) = v.local(p, ith), v.split(m, ith, nth)
        for u in range(b2 * v.ne(p, 0, 3)):
            i2, i3 = u % b2, u // b2
            d = v.data(p, 0) + i2 * v.nb(p, 0, 2) + i3 * v.nb(p, 0, 3)
            a = v.data(p, 1) + i2 // repeat2 * v.nb(p, 1, 2) + i3 // repeat3 * v.nb(p, 1, 3)
            b = v.data(p, 2) + i2 * v.nb(p, 2, 2) + i3 * v.nb(p, 2, 3)
            for r in range(start, stop):
                for i in range(0, n, v.LANES):
                    v.store_n(d + r * v.nb(p, 0, 1) + 4 * i, v.f32(0.0), n - i)
            for k in range(v.ne(p, 1, 1)):
                to_f32(a + k * v.nb(p, 1, 1), n, x)
                for r in range(start, stop):
                    w = v.ld_f32(b + r * v.nb(p, 2, 0) + k * v.nb(p, 2, 1))
                    axpy(d + r * v.nb(p, 0, 1), w, x, n)


for _element in FLOATS:
    _out_prod(_element.name, _float_row(_element))
for _weight in weights().values():
    if _weight.dequantize is not None:
        _out_prod(_weight.type.name, _weight.dequantize)


def _add1(a: Element, b: Element) -> None:
    load_n, store_n, size, ld = a.load_n, a.store_n, a.size, b.ld
    when = both(types_are(a.name, a.name, b.name), dense_rows)

    @kernel("ADD1", when=when, name=f"add1_{a.name}_{b.name}")
    def add1(p, ith, nth):
        n, y = v.ne(p, 0, 0), ld(v.data(p, 2))
        start, stop = v.split(n_rows(p, 0), ith, nth)
        for r in range(start, stop):
            d, x = row_at(p, 0, r), row_at(p, 1, r)
            for i in range(0, n, v.LANES):
                store_n(d + i * size, load_n(x + i * size, n - i) + y, n - i)


for _element in FLOATS:
    _add1(_element, _element)
    if _element is not F32:
        _add1(_element, F32)


@kernel()
def count_from_zero(p, ith, nth):
    if ith == 0:
        v.st_i64(v.data(p, 0), 0)


@fn
def equal_words(a, b, n):
    """How many of n i32, dense on both sides, are equal."""
    count, i = v.i32(0), 0
    while i + v.LANES <= n:
        count = v.select(v.i32_load(a + 4 * i) == v.i32_load(b + 4 * i), count + 1, count)
        i += v.LANES
    total = v.vsum(count)
    for k in range(i, n):
        total += int(v.ld_i32(a + 4 * k) == v.ld_i32(b + 4 * k))
    return total


@kernel("COUNT_EQUAL", when=types_are("i64", "i32", "i32"), prepare=(count_from_zero,))
def count_equal_i32(p, ith, nth):
    count, n = 0, v.ne(p, 1, 0)
    step_a, step_b, pieces = v.nb(p, 1, 0), v.nb(p, 2, 0), chunks_of(n)
    start, stop = v.split(n_rows(p, 1) * pieces, ith, nth)
    for u in range(start, stop):
        r, c = u // pieces, u % pieces * CHUNK
        a, b = row_at(p, 1, r) + c * step_a, row_at(p, 2, r) + c * step_b
        if step_a == 4 and step_b == 4:
            count += equal_words(a, b, min(CHUNK, n - c))
        else:
            for i in range(min(CHUNK, n - c)):
                count += int(v.ld_i32(a + i * step_a) == v.ld_i32(b + i * step_b))
    v.atomic_add(v.data(p, 0), count)

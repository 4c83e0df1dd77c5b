"""MUL_MAT with a Hadamard matrix: fast Walsh-Hadamard transform of each row of src1."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels._common import F16, F32, Element, n_rows, row_address
from ggml_py.ops.matrix import HADAMARD
from ggml_py.tensor import Tensor


def is_hadamard(node: Tensor) -> str:
    n = node.ne[0]
    if node.param("hint") != HADAMARD:
        return "needs the hint that src0 is a Hadamard matrix"
    if n < 2 or n & (n - 1):
        return f"needs a power of two; got {n}"
    x = node.source(1)
    return "" if x.nb[0] == x.type.type_size else "needs dense rows"


@fn
def butterflies(row, n):
    """Transform a row in place: butterflies of elements `half` apart, for half = 1, 2, 4..."""
    half = 1
    while half < n:
        for first in range(0, n, 2 * half):
            a, b = row + 4 * first, row + 4 * (first + half)
            if half >= v.LANES:
                for i in range(0, half, v.LANES):
                    x, y = v.f32_load(a + 4 * i), v.f32_load(b + 4 * i)
                    v.store(a + 4 * i, x + y)
                    v.store(b + 4 * i, x - y)
            else:
                for i in range(half):
                    s, t = v.ld_f32(a + 4 * i), v.ld_f32(b + 4 * i)
                    v.st_f32(a + 4 * i, s + t)
                    v.st_f32(b + 4 * i, s - t)
        half *= 2


def _hadamard(element: Element) -> None:
    load_n, size, name = element.load_n, element.size, element.name

    def check(node: Tensor) -> str:
        rows = node.source(1).type.name
        return is_hadamard(node) or ("" if rows == name else f"needs {name} rows")

    @kernel("MUL_MAT", when=check, rank=3, name=f"hadamard_{name}")
    def hadamard(p, ith, nth):
        n = v.ne(p, 0, 0)
        scale = v.float32(1.0) / v.sqrtf(v.float32(n))
        start, stop = v.split(n_rows(p, 0), ith, nth)
        for r in range(start, stop):
            d, x = row_address(p, 0, r), row_address(p, 2, r)
            for i in range(0, n, v.LANES):
                v.store_n(d + 4 * i, load_n(x + i * size, n - i) * scale, n - i)
            butterflies(d, n)


for _e in (F32, F16):
    _hadamard(_e)

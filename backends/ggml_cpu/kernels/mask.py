"""Triangles and constants."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import kernel
from ggml_cpu.kernels._common import F16, F32, Element, both, dense_rows, n_rows, row_at, types_are


@kernel("TRI", when=both(types_are("f32", "f32"), dense_rows))
def tri_f32(p, ith, nth):
    """Row i keeps columns [low, high): kind is 0 upper with its diagonal, 1 upper, 2 and 3 lower.
    """
    n, kind = v.ne(p, 0, 0), v.op_i32(p, 0)
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        d, x, i = row_at(p, 0, r), row_at(p, 1, r), r % v.ne(p, 0, 1)
        low, high = i + kind, n
        if kind >= 2:
            low, high = 0, i + 3 - kind
        for c in range(0, n, v.LANES):
            column = v.iota() + c
            kept = (column >= low) & (column < high)
            y = v.f32_load_n(x + 4 * c, n - c)
            v.store_n(d + 4 * c, v.select(kept, y, 0.0), n - c)


def _fill(element: Element) -> None:
    store_n, size = element.store_n, element.size

    @kernel("FILL", when=types_are(element.name, element.name), name=f"fill_{element.name}")
    def fill(p, ith, nth):
        value = v.f32(v.op_f32(p, 0))
        n = v.ne(p, 0, 0)
        start, stop = v.split(n_rows(p, 0), ith, nth)
        for r in range(start, stop):
            d = row_at(p, 0, r)
            for c in range(0, n, v.LANES):
                store_n(d + c * size, value, n - c)


for _e in (F32, F16):
    _fill(_e)


def _diag_mask(op: str, value: float) -> None:
    @kernel(op, when=both(types_are("f32", "f32"), dense_rows), name=f"{op.lower()}_f32")
    def diag_mask(p, ith, nth):
        n, n_past = v.ne(p, 0, 0), v.op_i32(p, 0)
        start, stop = v.split(n_rows(p, 0), ith, nth)
        for r in range(start, stop):
            d, x, last = row_at(p, 0, r), row_at(p, 1, r), n_past + r % v.ne(p, 0, 1)
            for c in range(0, n, v.LANES):
                y = v.f32_load_n(x + 4 * c, n - c)
                v.store_n(d + 4 * c, v.select(v.iota() + c > last, value, y), n - c)


_diag_mask("DIAG_MASK_INF", float("-inf"))
_diag_mask("DIAG_MASK_ZERO", 0.0)

"""Gradients of ops with respect to their sources."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.faults import in_range
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels._common import (
    F16,
    F32,
    Element,
    dense_rows,
    n_rows,
    require_all,
    row_address,
    types_are,
)
from ggml_cpu.kernels._map import map_pairs
from ggml_cpu.kernels._moves import fill_words
from ggml_cpu.kernels.norm import sum_of_squares
from ggml_cpu.target import LANES

COLUMNS = 64 * LANES  # maximum columns of a sum, to fit the L1 cache while rows stream past
ROWS = 8  # source rows added at a time, fewer than the ways of the L1 cache
MORE_THAN_CACHED = 1 << 24  # bytes from which dst is cleared with non-temporal stores
f32_rows = require_all(types_are("f32", "f32", "f32"), dense_rows)


@fn
def product(a, b, n):
    """Return the sum of a[i] * b[i] in float64."""
    total = v.to_f64(v.f32(0.0))
    for i in range(0, n, v.LANES):
        x, y = v.f32_load_n(a + 4 * i, n - i), v.f32_load_n(b + 4 * i, n - i)
        total = v.fma(v.to_f64(x), v.to_f64(y), total)
    return v.vsum(total)


@kernel("RMS_NORM_BACK", when=f32_rows)
def rms_norm_back_f32(p, ith, nth):
    n, eps = v.ne(p, 0, 0), v.op_f32(p, 0)
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        d, grad, x = row_address(p, 0, r), row_address(p, 1, r), row_address(p, 2, r)
        total = sum_of_squares(x, n) + n * eps
        along = v.float32(-product(x, grad, n) / total)
        factor = v.float32(1.0) / v.sqrtf(total / n)
        for i in range(0, n, v.LANES):
            y = v.fma(v.f32_load_n(x + 4 * i, n - i), along, v.f32_load_n(grad + 4 * i, n - i))
            v.store_n(d + 4 * i, y * factor, n - i)


@fn
def silu_back(grad, x):
    s = v.vsigmoid(x)
    return grad * s * (x * (v.f32(1.0) - s) + 1.0)


silu_back_rows = map_pairs(silu_back, F32, F32, repeated=0)


@kernel("SILU_BACK", when=f32_rows)
def silu_back_f32(p, ith, nth):
    silu_back_rows(p, ith, nth)


@kernel("SOFT_MAX_BACK", when=f32_rows)
def soft_max_back_f32(p, ith, nth):
    n, scale = v.ne(p, 0, 0), v.op_f32(p, 0)
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        d, grad, y = row_address(p, 0, r), row_address(p, 1, r), row_address(p, 2, r)
        along = v.float32(product(y, grad, n))
        for i in range(0, n, v.LANES):
            g = v.f32_load_n(grad + 4 * i, n - i) - along
            v.store_n(d + 4 * i, g * v.f32_load_n(y + 4 * i, n - i) * scale, n - i)


@fn
def clear_columns(p, start, stop):
    """Set columns start .. stop of dst to 0, with non-temporal stores if dst exceeds the caches."""
    d, b1, rows = v.data(p, 0) + 4 * start, v.nb(p, 0, 1), v.ne(p, 0, 1)
    n = stop - start
    aligned = (d | b1) % (4 * v.LANES) == 0 and n % v.LANES == 0
    if aligned and rows * b1 >= MORE_THAN_CACHED:
        for r in range(rows):
            for i in range(0, n, v.LANES):
                v.store_nt(d + r * b1 + 4 * i, v.f32(0.0))
    else:
        for r in range(rows):
            for i in range(0, n, v.LANES):
                v.store_n(d + r * b1 + 4 * i, v.f32(0.0), n - i)


def _get_rows_back(element: Element) -> None:
    load_n, size = element.load_n, element.size

    @kernel(
        "GET_ROWS_BACK",
        when=require_all(types_are("f32", element.name, "i32"), dense_rows),
        name=f"get_rows_back_{element.name}",
    )
    def get_rows_back(p, ith, nth):
        """Add gradients to rows of dst; each thread computes a range of columns of all rows.

        Splitting by rows would race: several gradients may belong to one row.
        """
        n = v.ne(p, 0, 0)
        start, stop = v.split_aligned(n, v.LANES, ith, nth)
        clear_columns(p, start, stop)
        for r in range(v.ne(p, 1, 1)):
            grad = v.data(p, 1) + r * v.nb(p, 1, 1)
            row = v.ld_i32(v.data(p, 2) + r * v.nb(p, 2, 0))
            if not in_range(p, row, v.ne(p, 0, 1)):
                continue
            d = v.data(p, 0) + row * v.nb(p, 0, 1)
            for i in range(start, stop, v.LANES):
                y = v.f32_load_n(d + 4 * i, stop - i) + load_n(grad + i * size, stop - i)
                v.store_n(d + 4 * i, y, stop - i)


for _e in (F32, F16):
    _get_rows_back(_e)


@fn
def add_tiles(d, row, step, count, n0, m0, n):
    """Add the elements of all tiles, m0 wide, in `count` rows of n0 elements to n elements of d."""
    for i in range(0, n, v.LANES):
        total = v.f32_load_n(d + 4 * i, n - i)
        for r in range(count):
            c = i
            while c < n0:
                total = total + v.f32_load_n(row + r * step + 4 * c, n - i)
                c += m0
        v.store_n(d + 4 * i, total, n - i)


@kernel("REPEAT_BACK", when=require_all(types_are("f32", "f32"), dense_rows))
def repeat_back_f32(p, ith, nth):
    """Sum the repeats of src0 into dst.

    Threads split dst's rows into full vectors; source rows stream past, ROWS at a time.
    """
    m0, m1, m2, m3 = v.ne(p, 0, 0), v.ne(p, 0, 1), v.ne(p, 0, 2), v.ne(p, 0, 3)
    n0, n1, n2, n3 = v.ne(p, 1, 0), v.ne(p, 1, 1), v.ne(p, 1, 2), v.ne(p, 1, 3)
    b1, b2, b3 = v.nb(p, 1, 1), v.nb(p, 1, 2), v.nb(p, 1, 3)
    blocks, repeats = (m0 + v.LANES - 1) // v.LANES, n1 // m1
    u, stop = v.split(n_rows(p, 0) * blocks, ith, nth)
    while u < stop:
        r, first = u // blocks, u % blocks * v.LANES
        n = min((stop - u) * v.LANES, m0 - first, COLUMNS)
        i1, i2, i3 = r % m1, r // m1 % m2, r // (m1 * m2)
        d = v.data(p, 0) + i1 * v.nb(p, 0, 1) + i2 * v.nb(p, 0, 2) + i3 * v.nb(p, 0, 3) + 4 * first
        x = v.data(p, 1) + 4 * first
        fill_words(d, n)
        for j3 in range(i3, n3, m3):
            for j2 in range(i2, n2, m2):
                plane = x + i1 * b1 + j2 * b2 + j3 * b3
                for t in range(0, repeats, ROWS):
                    rows = min(ROWS, repeats - t)
                    add_tiles(d, plane + t * m1 * b1, m1 * b1, rows, n0, m0, n)
        u += (n + v.LANES - 1) // v.LANES

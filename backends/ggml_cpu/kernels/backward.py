"""Gradients of ops with respect to their sources."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels.common import F16, F32, both, dense_rows, n_rows, row_at, types_are
from ggml_cpu.kernels.norm import sum_of_squares

MORE_THAN_CACHED = 1 << 24  # bytes

f32_rows = both(types_are("f32", "f32", "f32"), dense_rows)


@fn
def product(a, b, n):
    """Sum of a[i] * b[i], the lanes added in float64."""
    total = v.f32(0.0)
    for i in range(0, n, v.LANES):
        total = v.fma(v.f32_load_n(a + 4 * i, n - i), v.f32_load_n(b + 4 * i, n - i), total)
    return v.vsum64(total)


@kernel("RMS_NORM_BACK", when=f32_rows)
def rms_norm_back_f32(p, ith, nth):
    n, eps = v.ne(p, 0, 0), v.op_f32(p, 0)
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        d, grad, x = row_at(p, 0, r), row_at(p, 1, r), row_at(p, 2, r)
        total = sum_of_squares(x, n) + n * eps
        along = v.float32(-product(x, grad, n) / total)
        factor = v.float32(1.0) / v.sqrtf(total / n)
        for i in range(0, n, v.LANES):
            y = v.fma(v.f32_load_n(x + 4 * i, n - i), along, v.f32_load_n(grad + 4 * i, n - i))
            v.store_n(d + 4 * i, y * factor, n - i)


@kernel("SILU_BACK", when=f32_rows)
def silu_back_f32(p, ith, nth):
    n = v.ne(p, 0, 0)
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        d, grad, at = row_at(p, 0, r), row_at(p, 1, r), row_at(p, 2, r)
        for i in range(0, n, v.LANES):
            x = v.f32_load_n(at + 4 * i, n - i)
            s = v.vsigmoid(x)
            y = v.f32_load_n(grad + 4 * i, n - i) * s * (x * (v.f32(1.0) - s) + 1.0)
            v.store_n(d + 4 * i, y, n - i)


@kernel("SOFT_MAX_BACK", when=f32_rows)
def soft_max_back_f32(p, ith, nth):
    n, scale = v.ne(p, 0, 0), v.op_f32(p, 0)
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        d, grad, y = row_at(p, 0, r), row_at(p, 1, r), row_at(p, 2, r)
        along = v.float32(product(y, grad, n))
        for i in range(0, n, v.LANES):
            g = v.f32_load_n(grad + 4 * i, n - i) - along
            v.store_n(d + 4 * i, g * v.f32_load_n(y + 4 * i, n - i) * scale, n - i)


@fn
def clear_columns(p, start, stop):
    """Columns start.. stop of dst = 0; past the caches where dst is more than those hold."""
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


def _get_rows_back(element):
    load_n, size = element.load_n, element.size

    @kernel(
        "GET_ROWS_BACK",
        when=both(types_are("f32", element.name, "i32"), dense_rows),
        name=f"get_rows_back_{element.name}",
    )
    def get_rows_back(p, ith, nth):
        """A thread takes a range of columns of all rows: rows may be added to several times."""
        n = v.ne(p, 0, 0)
        start, stop = v.split_by(n, v.LANES, ith, nth)
        clear_columns(p, start, stop)
        for r in range(v.ne(p, 1, 1)):
            grad = v.data(p, 1) + r * v.nb(p, 1, 1)
            d = v.data(p, 0) + v.ld_i32(v.data(p, 2) + r * v.nb(p, 2, 0)) * v.nb(p, 0, 1)
            for i in range(start, stop, v.LANES):
                y = v.f32_load_n(d + 4 * i, stop - i) + load_n(grad + i * size, stop - i)
                v.store_n(d + 4 * i, y, stop - i)


for _e in (F32, F16):
    _get_rows_back(_e)


@fn
def add_tiles(total, row, n0, m0, i):
    """total + the elements from i on of each of the tiles in a row."""
    for c in range(0, n0, m0):
        total = total + v.f32_load_n(row + 4 * (c + i), m0 - i)
    return total


@kernel("REPEAT_BACK", when=both(types_are("f32", "f32"), dense_rows))
def repeat_back_f32(p, ith, nth):
    m0, m1, m2, m3 = v.ne(p, 0, 0), v.ne(p, 0, 1), v.ne(p, 0, 2), v.ne(p, 0, 3)
    n0, n1, n2, n3 = v.ne(p, 1, 0), v.ne(p, 1, 1), v.ne(p, 1, 2), v.ne(p, 1, 3)
    b1, b2, b3 = v.nb(p, 1, 1), v.nb(p, 1, 2), v.nb(p, 1, 3)
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        i1, i2, i3 = r % m1, r // m1 % m2, r // (m1 * m2)
        for i in range(0, m0, v.LANES):
            total = v.f32(0.0)
            for j3 in range(i3, n3, m3):
                for j2 in range(i2, n2, m2):
                    for j1 in range(i1, n1, m1):
                        row = v.data(p, 1) + j1 * b1 + j2 * b2 + j3 * b3
                        total = add_tiles(total, row, n0, m0, i)
            v.store_n(row_at(p, 0, r) + 4 * i, total, m0 - i)

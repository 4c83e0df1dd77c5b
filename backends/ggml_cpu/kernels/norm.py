"""RMS_NORM, L2_NORM, NORM and GROUP_NORM."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels._common import dense_rows, n_rows, require_all, row_address, types_are

f32_rows = require_all(types_are("f32", "f32"), dense_rows)


@fn
def sum_of_squares(x, n):
    """Return the sum of x[i]^2 in float64."""
    s0 = v.to_f64(v.f32(0.0))
    s1 = s0
    i = 0
    while i + 2 * v.LANES <= n:
        a = v.to_f64(v.f32_load(x + 4 * i))
        b = v.to_f64(v.f32_load(x + 4 * (i + v.LANES)))
        s0 = v.fma(a, a, s0)
        s1 = v.fma(b, b, s1)
        i += 2 * v.LANES
    while i < n:
        a = v.to_f64(v.f32_load_n(x + 4 * i, n - i))
        s0 = v.fma(a, a, s0)
        i += v.LANES
    return v.vsum(s0 + s1)


@fn
def rms_factor(x, n, eps):
    """Return the factor that normalizes a row: 1 / sqrt(mean(x^2) + eps)."""
    return 1.0 / v.sqrtf(sum_of_squares(x, n) / n + eps)


@fn
def sum_row(x, n):
    """Return the sum of a row in float64."""
    s0 = v.to_f64(v.f32(0.0))
    s1 = s0
    i = 0
    while i + 2 * v.LANES <= n:
        s0 = s0 + v.to_f64(v.f32_load(x + 4 * i))
        s1 = s1 + v.to_f64(v.f32_load(x + 4 * (i + v.LANES)))
        i += 2 * v.LANES
    while i < n:
        s0 = s0 + v.to_f64(v.f32_load_n(x + 4 * i, n - i))
        i += v.LANES
    return v.vsum(s0 + s1)


@fn
def scale_row(d, x, factor, n):
    """Store d = x * factor for n elements."""
    i = 0
    while i + v.LANES <= n:
        v.store(d + 4 * i, v.f32_load(x + 4 * i) * factor)
        i += v.LANES
    if i < n:
        v.store_n(d + 4 * i, v.f32_load_n(x + 4 * i, n - i) * factor, n - i)


@kernel("RMS_NORM", when=f32_rows)
def rms_norm_f32(p, ith, nth):
    n = v.ne(p, 0, 0)
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        x = row_address(p, 1, r)
        scale_row(row_address(p, 0, r), x, rms_factor(x, n, v.op_f32(p, 0)), n)


@kernel("L2_NORM", when=f32_rows)
def l2_norm_f32(p, ith, nth):
    n = v.ne(p, 0, 0)
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        x = row_address(p, 1, r)
        length = v.sqrtf(sum_of_squares(x, n))
        scale_row(row_address(p, 0, r), x, 1.0 / max(length, v.op_f32(p, 0)), n)


@fn
def center_row(d, x, mean, n):
    """Store d = x - mean; return the sum of squares of d."""
    for i in range(0, n, v.LANES):
        v.store_n(d + 4 * i, v.f32_load_n(x + 4 * i, n - i) - mean, n - i)
    return sum_of_squares(d, n)


@kernel("NORM", when=f32_rows)
def norm_f32(p, ith, nth):
    n = v.ne(p, 0, 0)
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        x, d = row_address(p, 1, r), row_address(p, 0, r)
        variance = center_row(d, x, sum_row(x, n) / n, n) / n
        scale_row(d, d, 1.0 / v.sqrtf(variance + v.op_f32(p, 0)), n)


@kernel("GROUP_NORM", when=require_all(types_are("f32", "f32"), dense_rows))
def group_norm_f32(p, ith, nth):
    n0, n1, n2, n3 = v.ne(p, 0, 0), v.ne(p, 0, 1), v.ne(p, 0, 2), v.ne(p, 0, 3)
    n_groups = v.op_i32(p, 0)
    per_group = (n2 + n_groups - 1) // n_groups
    start, stop = v.split(n_groups * n3, ith, nth)
    for u in range(start, stop):
        first = u // n_groups * n2 * n1 + u % n_groups * per_group * n1
        rows = (min(n2, (u % n_groups + 1) * per_group) - u % n_groups * per_group) * n1
        total = 0.0
        for r in range(first, first + rows):
            total += sum_row(row_address(p, 1, r), n0)
        mean = total / (n0 * rows)
        squares = 0.0
        for r in range(first, first + rows):
            squares += center_row(row_address(p, 0, r), row_address(p, 1, r), mean, n0)
        factor = 1.0 / v.sqrtf(squares / (n0 * rows) + v.op_f32(p, 1))
        for r in range(first, first + rows):
            scale_row(row_address(p, 0, r), row_address(p, 0, r), factor, n0)

"""SUM_ROWS, MEAN, SUM, CUMSUM and ARGMAX."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels._common import dense_rows, n_rows, require_all, row_address, types_are
from ggml_cpu.kernels.norm import sum_row
from ggml_py.tensor import Tensor

ABREAST = 4  # f32 vectors of a row that `cumsum_several` processes together
HALVES = 2 * ABREAST  # float64 vectors with their sums

f32_rows = require_all(types_are("f32", "f32"), dense_rows)


@fn
def first_row(p, line, axis):
    """Return the number of the first row of dst on a line along `axis` (1, 2 or 3).

    Lines are numbered in the order of their first rows.
    """
    inner = 1
    for i in range(1, axis):
        inner *= v.ne(p, 0, i)
    return line % inner + line // inner * inner * v.ne(p, 0, axis)


@kernel("SUM_ROWS", when=f32_rows)
def sum_rows_f32(p, ith, nth):
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        v.st_f32(row_address(p, 0, r), sum_row(row_address(p, 1, r), v.ne(p, 1, 0)))


@kernel("MEAN", when=f32_rows)
def mean_f32(p, ith, nth):
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        n = v.ne(p, 1, 0)
        v.st_f32(row_address(p, 0, r), sum_row(row_address(p, 1, r), n) / n)


@kernel("SUM", when=f32_rows)
def sum_f32(p, ith, nth):
    if ith == 0:
        total = 0.0
        for r in range(n_rows(p, 1)):
            total += sum_row(row_address(p, 1, r), v.ne(p, 1, 0))
        v.st_f32(v.data(p, 0), total)


def along_rows(node: Tensor) -> str:
    return "" if node.param("axis") == 0 else "sums along rows only"


@kernel("CUMSUM", when=require_all(f32_rows, along_rows), rank=1)
def cumsum_f32(p, ith, nth):
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        d, x = row_address(p, 0, r), row_address(p, 1, r)
        total = 0.0
        for i in range(v.ne(p, 0, 0)):
            total += v.ld_f32(x + 4 * i)
            v.st_f32(d + 4 * i, total)


@fn
def cumsum_one(d, x, step_d, step_x, length, n):
    """Compute cumulative sums along the axis for up to LANES columns; n: columns left."""
    low = v.to_f64(v.low(v.f32(0.0)))
    high = low
    for i in range(length):
        y = v.f32_load_n(x + i * step_x, n)
        low, high = low + v.to_f64(v.low(y)), high + v.to_f64(v.high(y))
        v.store_n(d + i * step_d, v.concat(v.to_f32(low), v.to_f32(high)), n)


@fn
def cumsum_several(d, x, step_d, step_x, length):
    """Compute cumulative sums along the axis for ABREAST * LANES columns.

    Longer contiguous accesses use more of the memory bandwidth.
    """
    total = v.f64_regs(HALVES)
    for i in range(length):
        for j in range(ABREAST):
            y = v.f32_load(x + i * step_x + 4 * v.LANES * j)
            low = total[2 * j] + v.to_f64(v.low(y))
            high = total[2 * j + 1] + v.to_f64(v.high(y))
            total[2 * j], total[2 * j + 1] = low, high
            y = v.concat(v.to_f32(low), v.to_f32(high))
            v.store(d + i * step_d + 4 * v.LANES * j, y)


@kernel("CUMSUM", when=f32_rows)
def cumsum_axis_f32(p, ith, nth):
    """Compute cumulative sums along axis 1, 2 or 3; threads split the columns in vectors."""
    axis, n = v.op_i32(p, 0), v.ne(p, 0, 0)
    length, blocks = v.ne(p, 0, axis), (n + v.LANES - 1) // v.LANES
    step_d, step_x = v.nb(p, 0, axis), v.nb(p, 1, axis)
    u, stop = v.split(n_rows(p, 0) // max(length, 1) * blocks, ith, nth)
    while u < stop:
        r, c = first_row(p, u // blocks, axis), u % blocks * v.LANES
        d, x = row_address(p, 0, r) + 4 * c, row_address(p, 1, r) + 4 * c
        if u + ABREAST <= stop and c + ABREAST * v.LANES <= n:
            cumsum_several(d, x, step_d, step_x, length)
            u += ABREAST
        else:
            cumsum_one(d, x, step_d, step_x, length, n - c)
            u += 1


@kernel("ARGMAX", when=require_all(types_are("i32", "f32"), dense_rows))
def argmax_f32(p, ith, nth):
    start, stop = v.split(n_rows(p, 1), ith, nth)
    for r in range(start, stop):
        x = row_address(p, 1, r)
        best = 0  # of equal elements the last, like ggml_vec_argmax_f32
        for i in range(1, v.ne(p, 1, 0)):
            if v.ld_f32(x + 4 * i) >= v.ld_f32(x + 4 * best):
                best = i
        v.st_i32(v.data(p, 0) + 4 * r, best)

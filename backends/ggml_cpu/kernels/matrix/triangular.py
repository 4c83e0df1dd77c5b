"""SOLVE_TRI and DIAG: solve triangular systems, make diagonal matrices."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import kernel
from ggml_cpu.kernels._common import dense_rows, n_rows, require_all, types_are
from ggml_cpu.kernels._moves import fill_words


@kernel("SOLVE_TRI", when=require_all(types_are("f32", "f32", "f32"), dense_rows))
def solve_tri_f32(p, ith, nth):
    """Solve by forward substitution, LANES right-hand sides at a time."""
    k, n, n2 = v.ne(p, 0, 0), v.ne(p, 0, 1), v.ne(p, 0, 2)
    groups = (k + v.LANES - 1) // v.LANES
    start, stop = v.split(groups * n2 * v.ne(p, 0, 3), ith, nth)
    for u in range(start, stop):
        c, i2, i3 = u % groups * v.LANES, u // groups % n2, u // groups // n2
        a = v.data(p, 1) + i2 * v.nb(p, 1, 2) + i3 * v.nb(p, 1, 3)
        b = v.data(p, 2) + i2 * v.nb(p, 2, 2) + i3 * v.nb(p, 2, 3) + 4 * c
        x = v.data(p, 0) + i2 * v.nb(p, 0, 2) + i3 * v.nb(p, 0, 3) + 4 * c
        for i in range(n):
            row = a + i * v.nb(p, 1, 1)
            s = v.f32_load_n(b + i * v.nb(p, 2, 1), k - c)
            for j in range(i):
                s = s - v.f32_load_n(x + j * v.nb(p, 0, 1), k - c) * v.ld_f32(row + 4 * j)
            v.store_n(x + i * v.nb(p, 0, 1), s / v.ld_f32(row + 4 * i), k - c)


@kernel("DIAG", when=require_all(types_are("f32", "f32"), dense_rows))
def diag_f32(p, ith, nth):
    n, n2 = v.ne(p, 0, 0), v.ne(p, 0, 2)
    r, stop = v.split(n_rows(p, 0), ith, nth)
    while r < stop:
        first, t = r % n, r // n
        last = min(n, first + stop - r)
        d = v.data(p, 0) + t % n2 * v.nb(p, 0, 2) + t // n2 * v.nb(p, 0, 3)
        x = v.data(p, 1) + t % n2 * v.nb(p, 1, 2) + t // n2 * v.nb(p, 1, 3)
        for i in range(first, last):
            row = d + i * v.nb(p, 0, 1)
            fill_words(row, n)
            v.st_f32(row + 4 * i, v.ld_f32(x + 4 * i))
        r += last - first

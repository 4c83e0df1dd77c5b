"""PAD (zero and circular padding), PAD_REFLECT_1D and ROLL."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import kernel
from ggml_cpu.kernels._common import dense_rows, n_rows, require_all, row_address, types_are
from ggml_cpu.kernels._moves import copy_bytes, fill_words
from ggml_py.tensor import Tensor


def not_circular(node: Tensor) -> str:
    return "needs zero padding" if node.param("circular") else ""


@kernel("PAD", when=require_all(types_are("f32", "f32"), not_circular))
def pad_f32(p, ith, nth):
    n0, n1, n2 = v.ne(p, 0, 0), v.ne(p, 0, 1), v.ne(p, 0, 2)
    m0, m1, m2, m3 = v.ne(p, 1, 0), v.ne(p, 1, 1), v.ne(p, 1, 2), v.ne(p, 1, 3)
    lp0, lp1, lp2, lp3 = v.op_i32(p, 0), v.op_i32(p, 2), v.op_i32(p, 4), v.op_i32(p, 6)
    b0 = v.nb(p, 1, 0)
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        i1, i2, i3 = r % n1 - lp1, r // n1 % n2 - lp2, r // (n1 * n2) - lp3
        d = row_address(p, 0, r)
        if 0 <= i1 < m1 and 0 <= i2 < m2 and 0 <= i3 < m3:
            s = v.data(p, 1) + i1 * v.nb(p, 1, 1) + i2 * v.nb(p, 1, 2) + i3 * v.nb(p, 1, 3)
            fill_words(d, lp0)
            if b0 == 4:
                copy_bytes(d + 4 * lp0, s, 4 * m0)
            else:
                for i in range(m0):
                    v.st_f32(d + 4 * (lp0 + i), v.ld_f32(s + i * b0))
            fill_words(d + 4 * (lp0 + m0), n0 - lp0 - m0)
        else:
            fill_words(d, n0)


def circular(node: Tensor) -> str:
    return "" if node.param("circular") else "needs circular padding"


@kernel("PAD", when=require_all(types_are("f32", "f32"), circular))
def pad_circular_f32(p, ith, nth):
    n0, n1, n2 = v.ne(p, 0, 0), v.ne(p, 0, 1), v.ne(p, 0, 2)
    m0, m1, m2, m3 = v.ne(p, 1, 0), v.ne(p, 1, 1), v.ne(p, 1, 2), v.ne(p, 1, 3)
    b0 = v.nb(p, 1, 0)
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        i1, i2, i3 = r % n1, r // n1 % n2, r // (n1 * n2)
        d = row_address(p, 0, r)
        s = v.data(p, 1) + (i1 - v.op_i32(p, 2)) % m1 * v.nb(p, 1, 1)
        s += (i2 - v.op_i32(p, 4)) % m2 * v.nb(p, 1, 2) + (i3 - v.op_i32(p, 6)) % m3 * v.nb(p, 1, 3)
        at = -v.op_i32(p, 0) % m0
        for i in range(n0):
            v.st_f32(d + 4 * i, v.ld_f32(s + at * b0))
            at = at + 1 if at + 1 < m0 else 0


@kernel("PAD_REFLECT_1D", when=require_all(types_are("f32", "f32"), dense_rows))
def pad_reflect_1d_f32(p, ith, nth):
    n, p0, p1 = v.ne(p, 1, 0), v.op_i32(p, 0), v.op_i32(p, 1)
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        s, d = row_address(p, 1, r), row_address(p, 0, r) + 4 * p0
        copy_bytes(d, s, 4 * n)
        for i in range(1, p0 + 1):
            v.st_f32(d - 4 * i, v.ld_f32(s + 4 * i))
        for i in range(1, p1 + 1):
            v.st_f32(d + 4 * (n - 1 + i), v.ld_f32(s + 4 * (n - 1 - i)))


@kernel("ROLL", when=require_all(types_are("f32", "f32"), dense_rows))
def roll_f32(p, ith, nth):
    n0, n1, n2, n3 = v.ne(p, 0, 0), v.ne(p, 0, 1), v.ne(p, 0, 2), v.ne(p, 0, 3)
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        i1 = (r % n1 - v.op_i32(p, 1)) % n1
        i2 = (r // n1 % n2 - v.op_i32(p, 2)) % n2
        i3 = (r // (n1 * n2) - v.op_i32(p, 3)) % n3
        s = v.data(p, 1) + i1 * v.nb(p, 1, 1) + i2 * v.nb(p, 1, 2) + i3 * v.nb(p, 1, 3)
        d, shift = row_address(p, 0, r), v.op_i32(p, 0) % n0
        copy_bytes(d + 4 * shift, s, 4 * (n0 - shift))
        copy_bytes(d, s + 4 * (n0 - shift), 4 * shift)

"""WIN_PART, WIN_UNPART, GET_REL_POS, ADD_REL_POS: windowed attention of Segment Anything."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import kernel
from ggml_cpu.kernels._common import dense_rows, n_rows, require_all, row_address, types_are
from ggml_cpu.kernels._moves import copy_bytes, fill_words

f32_rows = require_all(types_are("f32", "f32"), dense_rows)


@kernel("WIN_PART", when=f32_rows)
def win_part_f32(p, ith, nth):
    n, npx, w = v.ne(p, 0, 0), v.op_i32(p, 0), v.op_i32(p, 2)
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        window = r // (w * w)
        x, y = window % npx * w + r % w, window // npx * w + r // w % w
        if x < v.ne(p, 1, 1) and y < v.ne(p, 1, 2):
            s = v.data(p, 1) + x * v.nb(p, 1, 1) + y * v.nb(p, 1, 2)
            copy_bytes(row_address(p, 0, r), s, 4 * n)
        else:
            fill_words(row_address(p, 0, r), n)


@kernel("WIN_UNPART", when=f32_rows)
def win_unpart_f32(p, ith, nth):
    n, width, w = v.ne(p, 0, 0), v.ne(p, 0, 1), v.op_i32(p, 0)
    npx = (width + w - 1) // w
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        x, y = r % width, r // width
        s = v.data(p, 1) + x % w * v.nb(p, 1, 1) + y % w * v.nb(p, 1, 2)
        copy_bytes(row_address(p, 0, r), s + (y // w * npx + x // w) * v.nb(p, 1, 3), 4 * n)


@kernel("GET_REL_POS", when=require_all(types_are("f16", "f16"), dense_rows))
def get_rel_pos_f16(p, ith, nth):
    """Copy source row q - k + n - 1 to row k of plane q."""
    n, size = v.ne(p, 0, 1), 2 * v.ne(p, 0, 0)
    start, stop = v.split(v.ne(p, 0, 2), ith, nth)
    for q in range(start, stop):
        d, s = v.data(p, 0) + q * v.nb(p, 0, 2), v.data(p, 1) + (q + n - 1) * v.nb(p, 1, 1)
        for k in range(n):
            copy_bytes(d + k * v.nb(p, 0, 1), s - k * v.nb(p, 1, 1), size)


@kernel("ADD_REL_POS", when=types_are("f32", "f32", "f32", "f32"))
def add_rel_pos_f32(p, ith, nth):
    """Add pw and ph to the attention scores; the keys of a query form n rows of n.

    The op's builder requires contiguous tensors.
    """
    n = v.ne(p, 2, 0)
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for q in range(start, stop):
        pw, ph = v.data(p, 2) + 4 * n * q, v.data(p, 3) + 4 * n * q
        for h in range(n):
            at = 4 * n * (n * q + h)
            for i in range(0, n, v.LANES):
                x = v.f32_load_n(v.data(p, 1) + at + 4 * i, n - i) + v.ld_f32(ph + 4 * h)
                v.store_n(v.data(p, 0) + at + 4 * i, x + v.f32_load_n(pw + 4 * i, n - i), n - i)

"""SET and ACC: write or add a tensor to a window of another."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels._common import F32, dense_rows, n_rows, require_all, row_address, types_are
from ggml_cpu.kernels._map import map_pairs
from ggml_cpu.kernels._moves import copy_bytes
from ggml_cpu.kernels.arithmetic import add
from ggml_py.tensor import Tensor


@fn
def window_row(p, r):
    """Return the address in dst for row r of src1 (op params: nb1, nb2, nb3, offset)."""
    n1, n2 = v.ne(p, 2, 1), v.ne(p, 2, 2)
    i1, i2, i3 = r % n1, r // n1 % n2, r // (n1 * n2)
    shift = i1 * v.op_i32(p, 0) + i2 * v.op_i32(p, 1) + i3 * v.op_i32(p, 2)
    return v.data(p, 0) + v.op_i32(p, 3) + shift


@fn
def copy_base(p, ith, nth):
    """Copy src0 to dst unless they share memory (the in-place variant)."""
    if v.data(p, 0) != v.data(p, 1):
        start, stop = v.split(n_rows(p, 0), ith, nth)
        for r in range(start, stop):
            copy_bytes(row_address(p, 0, r), row_address(p, 1, r), 4 * v.ne(p, 0, 0))


def words(node: Tensor) -> str:
    return "" if node.type.name in ("f32", "i32") else f"needs f32 or i32; got {node.type}"


@kernel()
def window_base(p, ith, nth):
    copy_base(p, ith, nth)


@kernel("SET", when=require_all(words, dense_rows), prepare=(window_base,))
def set_words(p, ith, nth):
    start, stop = v.split(n_rows(p, 2), ith, nth)
    for r in range(start, stop):
        copy_bytes(window_row(p, r), row_address(p, 2, r), 4 * v.ne(p, 2, 0))


@fn
def window_and_source(p, r, size):
    """Return the addresses of row r: of the window, as dst and first operand, and of src1."""
    d = window_row(p, r)
    return d, d, row_address(p, 2, r)


add_to_window = map_pairs(add, F32, F32, rows_of=window_and_source, over=2)


@kernel("ACC", when=require_all(types_are("f32", "f32", "f32"), dense_rows), prepare=(window_base,))
def acc_f32(p, ith, nth):
    add_to_window(p, ith, nth)

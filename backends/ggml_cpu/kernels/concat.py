"""CONCAT and REPEAT: join two tensors, or repeat one."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels._common import (
    dense_rows,
    n_rows,
    require_all,
    row_address,
    row_repeated,
    run_stop,
)
from ggml_cpu.kernels._moves import copy_bytes, transpose_words
from ggml_py.tensor import Tensor

ROWS = 16  # rows per unit of work of CONCAT


def sizes_1_to_8(node: Tensor) -> str:
    fits = node.type.block_size == 1 and node.type.type_size in (1, 2, 4, 8)
    return "" if fits else f"needs elements of 1, 2, 4 or 8 bytes; got {node.type}"


def unit_sizes(node: Tensor) -> tuple[int, int]:
    return node.type.type_size, node.type.block_size


@kernel("CONCAT", extra=unit_sizes)
def concat(p, ith, nth):
    """Copy each source into its part of dst, plane by plane (dimensions 0 and 1)."""
    dim = v.op_i32(p, 0)
    for k in range(1, 3):
        shift = 0
        if k == 2:
            shift = v.ne(p, 1, dim) * v.nb(p, 0, dim)
            if dim == 0:
                shift = shift // v.extra(p, 1)
        concat_part(p, k, shift, ith, nth)


@fn
def concat_part(p, k, shift, ith, nth):
    """Copy source k to dst, from byte `shift` on; a row consists of elements or of blocks."""
    size = v.extra(p, 0)
    n0, n1, n2, n3 = v.ne(p, k, 0) // v.extra(p, 1), v.ne(p, k, 1), v.ne(p, k, 2), v.ne(p, k, 3)
    b0, b1, d0 = v.nb(p, k, 0), v.nb(p, k, 1), v.nb(p, 0, 0)
    blocks = (n1 + ROWS - 1) // ROWS
    start, stop = v.split(blocks * n2 * n3, ith, nth)
    for u in range(start, stop):
        first = u % blocks * ROWS
        i2, i3 = u // blocks % n2, u // (blocks * n2)
        d = v.data(p, 0) + shift + first * v.nb(p, 0, 1) + i2 * v.nb(p, 0, 2) + i3 * v.nb(p, 0, 3)
        s = v.data(p, k) + first * b1 + i2 * v.nb(p, k, 2) + i3 * v.nb(p, k, 3)
        rows = min(ROWS, n1 - first)
        if b0 == size and d0 == size:
            for r in range(rows):
                copy_bytes(d + r * v.nb(p, 0, 1), s + r * b1, n0 * size)
        elif size == 4 and b1 == 4 and d0 == 4:
            transpose_words(d, v.nb(p, 0, 1), s, b0, n0, rows)
        else:
            for r in range(rows):
                for i in range(n0):
                    copy_bytes(d + r * v.nb(p, 0, 1) + i * d0, s + r * b1 + i * b0, size)


@kernel(
    "REPEAT", when=require_all(sizes_1_to_8, dense_rows), extra=lambda node: (node.type.type_size,)
)
def repeat(p, ith, nth):
    n, m, m1 = v.ne(p, 0, 0), v.ne(p, 1, 0), v.ne(p, 1, 1)
    size = v.extra(p, 0)
    r, stop = v.split(n_rows(p, 0), ith, nth)
    while r < stop:  # one run of rows along dimension 1
        d, s, end = row_address(p, 0, r), row_repeated(p, 1, r), run_stop(p, 0, r, stop)
        i1 = r % v.ne(p, 0, 1) % m1
        s -= i1 * v.nb(p, 1, 1)
        for i in range(end - r):
            for c in range(0, n, m):
                copy_bytes(d + i * v.nb(p, 0, 1) + c * size, s + i1 * v.nb(p, 1, 1), m * size)
            i1 = i1 + 1 if i1 + 1 < m1 else 0
        r = end

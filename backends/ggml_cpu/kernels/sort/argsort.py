"""ARGSORT: merge sort of each row's indices."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels._common import dense_rows, n_rows, require_all, row_address, types_are
from ggml_cpu.kernels._moves import copy_bytes
from ggml_py.tensor import Tensor

RUN = 16  # elements per run, insertion-sorted before the merges


@fn
def precedes(x, i, j, descending):
    """Return True if element i of row x sorts before element j; equal elements keep their order."""
    a, b = v.ld_f32(x + 4 * i), v.ld_f32(x + 4 * j)
    if descending:
        return a > b or (a == b and i < j)
    return a < b or (a == b and i < j)


@fn
def insertion_sort(x, idx, start, stop, descending):
    for i in range(start, stop):
        j = i
        while j > start and precedes(x, i, v.ld_i32(idx + 4 * (j - 1)), descending):
            v.st_i32(idx + 4 * j, v.ld_i32(idx + 4 * (j - 1)))
            j -= 1
        v.st_i32(idx + 4 * j, i)


@fn
def merge(x, a, b, start, middle, stop, descending):
    """Merge the sorted a[start:middle] and a[middle:stop] into b[start:stop]."""
    i, j = start, middle
    for k in range(start, stop):
        left = v.ld_i32(a + 4 * i) if i < middle else 0
        right = v.ld_i32(a + 4 * j) if j < stop else 0
        if j >= stop or (i < middle and precedes(x, left, right, descending)):
            v.st_i32(b + 4 * k, left)
            i += 1
        else:
            v.st_i32(b + 4 * k, right)
            j += 1


@fn
def sort_indices(x, idx, spare, n, descending):
    """Sort the indices 0..n-1 of row x; return the buffer with the result, idx or spare."""
    for start in range(0, n, RUN):
        insertion_sort(x, idx, start, min(n, start + RUN), descending)
    width = RUN
    while width < n:
        for start in range(0, n, 2 * width):
            middle, stop = min(n, start + width), min(n, start + 2 * width)
            merge(x, idx, spare, start, middle, stop, descending)
        idx, spare = spare, idx
        width *= 2
    return idx


@fn
def indices_bytes(n: int) -> int:
    """Return the bytes of a row's indices; each thread has two such buffers."""
    return 4 * n


def index_rows(node: Tensor, nth: int) -> tuple[int, int]:
    return 0, 2 * indices_bytes(node.source(0).ne[0])


@kernel("ARGSORT", when=require_all(types_are("i32", "f32"), dense_rows), scratch=index_rows)
def argsort_f32(p, ith, nth):
    n, a = v.ne(p, 0, 0), v.local(p, ith)
    b = a + indices_bytes(n)
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        found = sort_indices(row_address(p, 1, r), a, b, n, v.op_i32(p, 0) == 1)
        copy_bytes(row_address(p, 0, r), found, 4 * n)

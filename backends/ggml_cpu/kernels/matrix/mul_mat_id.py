"""MUL_MAT_ID: multiply each token by the matrices of its selected experts.

src0 [k, m, experts], src1 [k, 1 or n_used, tokens], src2 ids i32 [n_used, tokens]. If src0 is
scattered (ggml_cpu/experts), its data are the addresses of the experts' matrices.

For one token (in place: up to FEW tokens), each selected expert's rows are multiplied by one
column. For more tokens, tokens are grouped by expert (_experts.py), then each expert is multiplied
like a matrix in mul_mat.py. Threads take contiguous parts of equal work.
"""

from __future__ import annotations

from collections.abc import Callable

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import FEW, LAYOUT, Weight
from ggml_cpu.blocks.tiles import pad_columns
from ggml_cpu.faults import index_or_0
from ggml_cpu.kernel import Function, Kernel, fn, kernel
from ggml_cpu.kernels._products import SUM_BYTES, build_matrix_address, get_shape, store_rows
from ggml_cpu.kernels.matrix._columns import LOCAL, ROWS
from ggml_cpu.kernels.matrix._experts import (
    COLUMN,
    COUNT,
    EXPERT,
    EXPERTS,
    GROUP_BYTES,
    OF,
    PLACE,
    end_of_lists,
    find_expert,
    is_here,
    local_bytes,
    order_address,
    shared_bytes,
)
from ggml_cpu.kernels.matrix._ways import Way, declare
from ggml_cpu.kernels.matrix.mul_mat import refusal, source_kind
from ggml_cpu.quants import weights
from ggml_py.backend import SCATTERED
from ggml_py.tensor import Tensor

VALUE = 4  # index of the tensor with the values of a GLU
SCATTER = 2  # index of `extra`: 1 if src0 is scattered


def is_scattered(weight: Tensor) -> bool:
    """Return True if the weight's data are the addresses of its matrices."""
    return weight.layout.endswith(SCATTERED)


def _refusal(weight: Weight, layout: str, node: Tensor) -> str:
    scattered = is_scattered(node.source(0))
    return refusal(weight, layout + SCATTERED if scattered else layout, node)


def _kinds(node: Tensor) -> tuple[int, ...]:
    return *source_kind(node), int(is_scattered(node.source(0)))


def _build_expert_address(weight: Weight, in_place: bool) -> Function:
    """Return address(p, expert): the address of an expert's matrix."""
    matrix = build_matrix_address(weight, in_place)

    @fn
    def address(p, expert):
        if v.extra(p, SCATTER) != 0:
            return v.ld_i64(v.data(p, 1) + 8 * expert)
        return matrix(p, expert, 0)

    return address


def _few_tokens(weight: Weight, in_place: bool) -> None:
    """Declare the kernel for few tokens: rows of the selected experts times one column each."""
    layout, suffix, limit = ("", "rows", FEW) if in_place else (LAYOUT, "panel", 1)
    at_once = weight.dot_rows if in_place else weight.rows
    panel, shape = weight.panel, get_shape(weight)
    activations = weight.dot_activations if in_place else weight.activations
    count_steps, column_bytes = shape.count_steps, activations.column_bytes

    def check(node: Tensor) -> str:
        n = node.source(1).ne[2]
        if why := _refusal(weight, layout, node):
            return why
        return "" if n <= limit else f"needs at most {limit} tokens; got {n}"

    def scratch(node: Tensor, nth: int) -> tuple[int, int]:
        b = node.source(1)
        return b.n_rows * column_bytes(b.ne[0]), max(LOCAL, SUM_BYTES)

    @kernel(
        "MUL_MAT_ID",
        when=check,
        scratch=scratch,
        prepare=(ROWS[activations],),
        extra=_kinds,
        rank=1,
        first=weight.type.name,
        name=f"mul_mat_id_{weight.type.name}_{suffix}",
        made=True,
    )
    def mul_mat_id_few():
        dot, multiply = weight.dot, weight.tile(1)
        matrix = _build_expert_address(weight, in_place)

        def multiply_few(p, ith, nth):
            k, m, stride, sums = v.ne(p, 1, 0), v.ne(p, 1, 1), v.nb(p, 1, 1), v.local(p, ith)
            pieces, slots, used = (m + at_once - 1) // at_once, v.ne(p, 2, 1), v.ne(p, 3, 0)
            start, stop = v.split(pieces * used * v.ne(p, 3, 1), ith, nth)
            while start < stop:
                entry, first = start // pieces, start % pieces
                last = min(pieces, first + stop - start)
                start += last - first
                expert, out = find_expert(p, entry), v.data(p, 0) + entry * v.nb(p, 0, 1)
                if not is_here(p, expert):
                    zero_rows(out + 4 * first * at_once, min(m, last * at_once) - first * at_once)
                    continue
                w = matrix(p, expert)
                column = v.shared(p) + (entry // used * slots + entry % slots) * column_bytes(k)
                for i in range(first, last):
                    rows = min(at_once, m - i * at_once)
                    if in_place:
                        dot(w + i * at_once * stride, stride, rows, column, k, sums)
                    else:
                        multiply(w + i * panel(count_steps(k)), column, count_steps(k), sums)
                    store_rows(sums, rows, out + 4 * i * at_once)

        return multiply_few


@fn
def zero_rows(out, n):
    """Set n results to 0, for an expert that is not in src0."""
    for i in range(0, n, v.LANES):
        v.store_n(out + 4 * i, v.f32(0.0), n - i)


@fn
def total_columns(groups):
    """Return the number of columns of all groups, stored in the sentinel group."""
    while v.ld_i32(groups + COUNT) > 0:
        groups += GROUP_BYTES
    return v.ld_i32(groups + COLUMN)


@fn
def first_panel(unit, start, width, panels):
    """Return the first panel of a group at or after work unit `unit`.

    Work is counted in panels times columns; the group has `width` columns and begins at `start`.
    """
    return min(panels, (max(0, unit - start) + width - 1) // width)


def columns_each(node: Tensor) -> int:
    """Return the number of columns per expert if all are selected equally often."""
    ids = node.source(2)
    return ids.ne[0] * ids.ne[1] // max(1, node.source(0).ne[2])


def _multiply_groups(way: Way) -> Callable[..., None]:
    """Return the kernel function that computes a thread's part of all products."""
    product, gate_params = way.product, way.gate_params(VALUE)
    matrix = _build_expert_address(way.weight, way.in_place)
    count_panels, panels_per_group = way.count_panels, way.panels_per_group
    column_bytes = way.weight.activations.column_bytes

    def multiply_groups(p, ith, nth):
        k, m, entries = v.ne(p, 1, 0), v.ne(p, 1, 1), v.ne(p, 3, 0) * v.ne(p, 3, 1)
        group, panels, local = v.shared(p), count_panels(m), v.local(p, ith)
        order, columns = order_address(group, entries), end_of_lists(group, entries)
        start, stop = v.split(total_columns(group) * panels, ith, nth)
        while v.ld_i32(group + COUNT) > 0:
            n, column = v.ld_i32(group + COUNT), v.ld_i32(group + COLUMN)
            first = first_panel(start, column * panels, pad_columns(n), panels)
            end = first_panel(stop, column * panels, pad_columns(n), panels)
            w = matrix(p, index_or_0(p, v.ld_i32(group + EXPERT), v.ne(p, 1, 2)))
            a, names = columns + column * column_bytes(k), order + 4 * v.ld_i32(group + PLACE)
            while first < end:
                last = min(end, first + panels_per_group(k))
                product(
                    w,
                    v.nb(p, 1, 1),
                    k,
                    m,
                    first,
                    last,
                    a,
                    n,
                    v.data(p, 0),
                    v.nb(p, 0, 1),
                    names,
                    local,
                    *gate_params(p),
                )
                first = last
            group += GROUP_BYTES
        if v.op_i32(p, OF) > 0:
            start, stop = v.split(entries, ith, nth)
            for i in range(start, stop):
                if not is_here(p, find_expert(p, i)):
                    zero_rows(v.data(p, 0) + i * v.nb(p, 0, 1), m)

    return multiply_groups


def _group_kernel(way: Way) -> Kernel:
    """Return the kernel of a variant: experts times the columns of their tokens."""
    weight = way.weight

    def check(node: Tensor) -> str:
        return _refusal(weight, way.layout, node) or way.why_not(columns_each(node))

    def scratch(node: Tensor, nth: int) -> tuple[int, int]:
        local = max(local_bytes(node), way.local_bytes(node.source(0).ne[0]))
        return shared_bytes(node, weight.activations) + way.reserved_bytes, local

    @kernel(
        "MUL_MAT_ID",
        when=check,
        scratch=scratch,
        prepare=(EXPERTS[weight.activations],),
        extra=_kinds,
        rank=1 if way.least else 0,
        first=weight.type.name,
        name=f"mul_mat_id_{weight.type.name}_{way.suffix}",
        made=True,
    )
    def mul_mat_id_grouped():
        return _multiply_groups(way)

    return mul_mat_id_grouped


for _weight in weights().values():
    _few_tokens(_weight, in_place=True)
    if _weight.is_repacked:
        _few_tokens(_weight, in_place=False)
    declare("MUL_MAT_ID", _weight, _group_kernel)

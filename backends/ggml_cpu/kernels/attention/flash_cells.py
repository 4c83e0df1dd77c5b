"""FLASH_ATTN_EXT for one or two query rows per head over a long cache, read in memory order.

The heads of a cell are contiguous, so the rows of one head are short runs, far apart. The hardware
prefetchers cannot predict them, and a core has only a few outstanding cache misses. Here a thread
reads whole cells, or the same heads of each cell, and the hardware prefetchers follow.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.ahead import AHEAD, ALONE, SIDE_BY_SIDE, ahead
from ggml_cpu.kernel import Function, fn, kernel, routine
from ggml_cpu.kernels._common import FLOATS, pad_to_lanes
from ggml_cpu.kernels.attention._few_rows import build_seen_values
from ggml_cpu.kernels.attention._parts import (
    FACTOR,
    KEYS,
    STATE,
    K,
    Q,
    V,
    flash_start,
    group_size,
    keys_seen,
    kv_address,
    refusal,
    shared_bytes,
    weigh_row,
)
from ggml_cpu.kernels.attention._sources import IN_BLOCKS, Accepts, Rows, accept_types, build_rows
from ggml_cpu.kernels.attention.flash_rows import (
    any_spoilt,
    count_parts,
    even,
    extra,
    finish_pairs,
    pair_size,
    query_row,
    start_pair,
    sum_row,
)
from ggml_cpu.target import LANES
from ggml_py.tensor import Tensor

ROWS = 2  # maximum query rows per key head; with more, computation takes as long as memory reads
LONG = 1024  # minimum keys: the read order matters for long caches only


@fn
def count_groups(heads: int, shares: int, nth: int) -> int:
    """Return the number of head groups that gives all threads work.

    shares: batches times parts of the keys. Several groups are needed if shares < nth.
    """
    groups = 1
    while groups * shares < nth and heads % (2 * groups) == 0:
        groups *= 2
    return groups


@fn
def distance(stride):
    """Return the bytes from a cell to the cell to prefetch."""
    return max(1, AHEAD // stride) * stride


@fn
def fetch(at, later):
    """Prefetch data ahead of `at`, unless the hardware prefetchers are faster alone.

    With SIDE_BY_SIDE, whole cells are prefetched; with several head groups, parts of a cell are for
    other threads.
    """
    if SIDE_BY_SIDE:
        v.prefetch(ahead(at))
    elif ALONE == 0:
        v.prefetch(at + later)


def _dots(source: Rows) -> Function:
    block, element_bytes, load, _ = source

    @routine
    def dots(q, q_apart, src, stride, apart, heads, n, d, out):
        """Compute scores of n cells: f32 [heads][ROWS][KEYS].

        apart: bytes between heads of a cell; q_apart: bytes between the queries of heads.
        """
        step, later = 4 * pad_to_lanes(d), distance(stride)
        for cell in range(n):
            for head in range(heads):
                at, queries = src + cell * stride + head * apart, q + head * q_apart
                sums = v.f32_regs(ROWS)
                for i in range(0, d, block):
                    fetch(at + element_bytes(i), later)
                    for h in range(0, block, LANES):
                        x = load(at + element_bytes(i), h)
                        for r in range(ROWS):
                            y = v.f32_load(queries + r * step + 4 * (i + h))
                            sums[r] = v.fma(x, y, sums[r])
                for r in range(ROWS):
                    v.st_f32(out + 4 * ((head * ROWS + r) * KEYS + cell), v.vsum(sums[r]))

    return dots


def _values(source: Rows) -> Function:
    block, element_bytes, load, _ = source

    @routine
    def add_values(weights, src, stride, apart, heads, n, dv, out, out_apart):
        """Add the weighted values of n cells to the sums of all heads' rows."""
        step, later = 4 * pad_to_lanes(dv), distance(stride)
        for cell in range(n):
            for head in range(heads):
                at, to = src + cell * stride + head * apart, out + head * out_apart
                factors = v.f32_regs(ROWS)
                for r in range(ROWS):
                    factors[r] = v.f32_bcast(weights + 4 * ((head * ROWS + r) * KEYS + cell))
                for i in range(0, dv, block):
                    fetch(at + element_bytes(i), later)
                    for h in range(0, block, LANES):
                        x = load(at + element_bytes(i), h)
                        for r in range(ROWS):
                            y = to + r * step + 4 * (i + h)
                            v.store(y, v.fma(x, factors[r], v.f32_load(y)))

    return add_values


@fn
def fit_sums(state, rows, sums, dv):
    """Rescale the sums of rows to the new maxima, by the factors in their states."""
    for r in range(rows):
        factor = v.ld_f32(state + STATE * r + FACTOR)
        if factor != 1.0:
            for i in range(0, dv, LANES):
                at = sums + 4 * (r * pad_to_lanes(dv) + i)
                v.store(at, v.f32_load(at) * factor)


@fn
def heads_address(local: int, heads: int) -> int:
    """Return the address of the heads' data in local scratch, after the scores."""
    return local + 4 * KEYS * heads * ROWS


def scratch(node: Tensor, nth: int) -> tuple[int, int]:
    q, k, values = node.sources(3)
    heads, batches, rows = k.ne[2], k.ne[3], q.ne[1] * q.ne[2] // k.ne[2]
    shared = shared_bytes(node, heads * batches, count_parts(batches, k.ne[1], nth))
    head = sum_row(0, rows, even(rows), q.ne[0], values.ne[0])
    return shared, heads_address(0, heads) + heads * head


def _run_tile(keys: Rows, values: Rows) -> Function:
    dots, add_values, seen_values = _dots(keys), _values(values), build_seen_values(values)

    @fn
    def run_tile(p, pair, heads, key, n, rows, local, careful):
        """Process n cells for the rows of `heads` heads from `pair` on."""
        d, dv = v.ne(p, Q, 0), v.ne(p, V, 0)
        at, size = heads_address(local, heads), pair_size(p, rows)
        q, sums = query_row(at, rows, 0, d), sum_row(at, rows, 0, d, dv)
        src = kv_address(p, K, pair, key)
        dots(q, size, src, v.nb(p, K, 1), v.nb(p, K, 2), heads, n, d, local)
        for i in range(heads):
            for r in range(rows):
                scores = local + 4 * KEYS * (i * ROWS + r)
                weigh_row(p, pair + i, r, key, n, scores, at + i * size + r * STATE)
        src, apart, stride = kv_address(p, V, pair, key), v.nb(p, V, 2), v.nb(p, V, 1)
        if careful:
            for i in range(heads):
                w, s, state = local + 4 * KEYS * ROWS * i, src + i * apart, at + i * size
                seen_values(rows, w, state, s, stride, n, dv, sums + i * size)
        else:
            for i in range(heads):
                fit_sums(at + i * size, rows, sums + i * size, dv)
            add_values(local, src, stride, apart, heads, n, dv, sums, size)

    return run_tile


def _flash(name: str, accepts: Accepts, keys: Rows, values: Rows) -> None:
    """Declare a kernel for the types of keys and values that `accepts` takes."""
    run_tile = _run_tile(keys, values)

    @fn
    def run_cells(p, pair, heads, begin, end, rows, local, careful):
        """Process the keys begin .. end for `heads` heads from `pair` on."""
        for i in range(heads):
            start_pair(p, pair + i, rows, heads_address(local, heads) + i * pair_size(p, rows))
        for key in range(begin, end, KEYS):
            n = keys_seen(p, pair, 0, rows, key, min(KEYS, end - key))
            if n > 0:
                run_tile(p, pair, heads, key, n, rows, local, careful)

    def check(node: Tensor) -> str:
        return refusal(node, name, accepts) or _why_not(node, keys, values)

    @kernel(
        "FLASH_ATTN_EXT",
        when=check,
        scratch=scratch,
        prepare=(flash_start,),
        extra=extra,
        rank=4,
        name=f"flash_attn_cells_{name}",
    )
    def flash_attn_cells(p, ith, nth):
        n_kv, rows, local = v.ne(p, K, 1), v.ne(p, Q, 1) * group_size(p), v.local(p, ith)
        parts = count_parts(v.ne(p, K, 3), n_kv, nth)
        groups = count_groups(v.ne(p, K, 2), v.ne(p, K, 3) * parts, nth)
        heads = v.ne(p, K, 2) // groups
        at = heads_address(local, heads)
        start, stop = v.split(v.ne(p, K, 3) * groups * parts, ith, nth)
        for u in range(start, stop):
            pair, part = u // parts * heads, u % parts
            begin, end = v.split_aligned(n_kv, KEYS, part, parts)
            careful, again = False, True
            while again:  # a loop with one call, because each call is inlined
                run_cells(p, pair, heads, begin, end, rows, local, careful)
                again = not careful and any_spoilt(p, heads, rows, at)
                careful = again
            finish_pairs(p, pair, heads, rows, part, parts, at)


def _why_not(node: Tensor, keys: Rows, values: Rows) -> str:
    (q, k, v_), mask = node.sources(3), node.optional(3)
    rows, heads = q.ne[1] * q.ne[2] // k.ne[2], k.ne[2]
    if rows > ROWS:
        return f"needs at most {ROWS} query rows per key head; got {rows}"
    if k.ne[1] < LONG:
        return f"needs at least {LONG} keys; got {k.ne[1]}"
    if heads < 2:
        return f"needs several key heads; got {heads}"
    if any(t.nb[2] > t.nb[1] for t in (k, v_)):
        return f"needs contiguous heads in each cell; got {k} and {v_}"
    if k.ne[0] % keys.step or v_.ne[0] % values.step:
        return f"needs heads of whole blocks of {keys.step} and {values.step}; got {k} and {v_}"
    return "" if mask is None or mask.ne[2] == 1 else f"needs one mask for all heads; got {mask}"


for _element in FLOATS:
    _rows = build_rows(_element)
    _flash(_element.name, accept_types(_element.name, _element.name), _rows, _rows)
for _name, _accepts, _keys, _values_of in IN_BLOCKS:
    _flash(_name, _accepts, _keys, _values_of)

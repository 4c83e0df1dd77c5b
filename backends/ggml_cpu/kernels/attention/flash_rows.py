"""FLASH_ATTN_EXT for few tokens: read keys and values once for all rows, without packing.

A thread processes KEYS cells of the cache for one key head after another. It thus reads the cache
nearly in memory order, although the heads of a cell are contiguous.
"""

from __future__ import annotations

from typing import NamedTuple

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import Function, fn, kernel, routine
from ggml_cpu.kernels._common import F32, pad_to_lanes
from ggml_cpu.kernels.attention._few_rows import build_all_dots, build_all_values, build_seen_values
from ggml_cpu.kernels.attention._parts import (
    K_BYTES,
    K_KIND,
    KEYS,
    MIN_KEYS,
    STATE,
    V_BYTES,
    V_KIND,
    K,
    Q,
    V,
    finish_row,
    flash_start,
    group_size,
    is_spoilt,
    keys_seen,
    kv_address,
    merge_parts,
    query_address,
    refusal,
    scores_scale,
    shared_bytes,
    start_row,
    weigh_row,
)
from ggml_cpu.kernels.attention._sources import (
    IN_BLOCKS,
    SOURCES,
    WORD,
    Accepts,
    Rows,
    Source,
    build_rows,
    kv_kinds,
)
from ggml_cpu.target import AMX, LANES
from ggml_py.tensor import Tensor

FEW = 32 if AMX else 64  # maximum rows; with more, packing keys and values first is faster
DIRECT = 2  # maximum rows for blocks in place; with more, converting them to f32 first is faster
SCORES = FEW * 4 * KEYS  # bytes of the scores


@fn
def count_parts(pairs: int, n_kv: int, nth: int) -> int:
    """Return the parts of the keys that give threads equal numbers of (part, pair) units."""
    a, b = pairs, nth
    while b > 0:
        a, b = b, a % b
    return max(1, min(nth // a, n_kv // MIN_KEYS))


@fn
def even(rows: int) -> int:
    """Return rows rounded up to even, because they are processed in fours and twos."""
    return (rows + 1) // 2 * 2


@fn
def query_row(at: int, rows: int, r: int, d: int) -> int:
    """Return the address of query r of a pair's scratch: states, then queries, then sums."""
    return at + (even(rows) * STATE + WORD - 1) // WORD * WORD + r * 4 * pad_to_lanes(d)


@fn
def sum_row(at: int, rows: int, r: int, d: int, dv: int) -> int:
    return query_row(at, rows, even(rows), d) + r * 4 * pad_to_lanes(dv)


@fn
def local_pair(rows: int, i: int, d: int, dv: int) -> int:
    """Return the offset of pair i in local scratch, after the scores and KEYS spare rows of f32."""
    return SCORES + 4 * KEYS * max(d, dv) + i * sum_row(0, rows, even(rows), d, dv)


@fn
def pair_address(p, local, rows, i):
    return local + local_pair(rows, i, v.ne(p, Q, 0), v.ne(p, V, 0))


def scratch(node: Tensor, nth: int) -> tuple[int, int]:
    q, k, values = node.sources(3)
    pairs, rows = k.ne[2] * k.ne[3], q.ne[1] * q.ne[2] // k.ne[2]
    parts = count_parts(pairs, k.ne[1], nth)
    at_once = min(pairs, -(-pairs * parts // nth))
    return shared_bytes(node, pairs, parts), local_pair(rows, at_once, q.ne[0], values.ne[0])


def extra(node: Tensor) -> tuple[int, ...]:
    k = node.source(1)
    return (k.ne[2] * k.ne[3], *kv_kinds(node))


@routine
def start_pair(p, pair, rows, at):
    """Initialize a pair's rows and store its scaled queries; the last row fills a missing row.

    For few tokens, ggml rounds queries to the type of the keys. This kernel does not, like the
    kernels for many tokens, so that results do not depend on how a prompt is split into ubatches.
    """
    d, dv, scale = v.ne(p, Q, 0), v.ne(p, V, 0), scores_scale(p)
    for r in range(even(rows)):
        row = min(r, rows - 1)
        start_row(p, pair, row, at + r * STATE, sum_row(at, rows, r, d, dv), WORD)
        q, to = query_address(p, pair, row), query_row(at, rows, r, d)
        for i in range(0, d, LANES):
            v.store(to + 4 * i, v.f32_load_n(q + 4 * i, d - i) * scale)


@fn
def pair_size(p, rows):
    """Return the bytes of a pair's scratch."""
    return sum_row(0, rows, even(rows), v.ne(p, Q, 0), v.ne(p, V, 0))


@fn
def any_spoilt(p, count, rows, at):
    """Return True if any of the `count` pairs with scratch at `at` must be recomputed."""
    for i in range(count):
        for r in range(rows):
            pair = at + i * pair_size(p, rows)
            if is_spoilt(p, sum_row(pair, rows, r, v.ne(p, Q, 0), v.ne(p, V, 0)), WORD):
                return True
    return False


@fn
def finish_pairs(p, first, count, rows, part, parts, at):
    """Store the results of pairs first .. first + count for a part of the keys."""
    for i in range(count):
        pair = at + i * pair_size(p, rows)
        for r in range(rows):
            sums = sum_row(pair, rows, r, v.ne(p, Q, 0), v.ne(p, V, 0))
            finish_row(p, first + i, r, part, parts, pair + r * STATE, sums, WORD)
        merge_parts(p, first + i, 0, rows, first + i, parts)


class _Reader(NamedTuple):
    """Functions that read keys or values, in place or converted to f32.

    Attributes:
        rows: Functions that read the rows that `place` returns.
        place: place(p, k, src, ahead, n, d, spare) returns the address and stride of n rows of d
            elements and the address to prefetch while reading them. If it converts the rows to
            f32 in `spare`, it prefetches `ahead` itself.
    """

    rows: Rows
    place: Function


def _in_place(rows: Rows) -> _Reader:
    @fn
    def place(p, k, src, ahead, n, d, spare):
        return src, v.nb(p, k, 1), ahead

    return _Reader(rows, place)


def _build_reader(source: Source) -> _Reader:
    move = source.place

    @fn
    def place(p, k, src, ahead, n, d, spare):
        kind, size = v.extra(p, K_KIND), v.extra(p, K_BYTES)
        if k == V:
            kind, size = v.extra(p, V_KIND), v.extra(p, V_BYTES)
        stride = v.nb(p, k, 1)
        for r in range(n):
            for i in range(0, size, 64):
                v.prefetch(ahead + r * stride + i)
            move(kind, src + r * stride, stride, 1, d, spare + 4 * d * r)
        return spare, 4 * d, spare

    return _Reader(build_rows(F32), place)


def _run_tile(keys: _Reader, values: _Reader) -> Function:
    all_dots, all_values = build_all_dots(keys.rows), build_all_values(values.rows)
    seen_values = build_seen_values(values.rows)
    place_keys, place_values = keys.place, values.place

    @fn
    def run_tile(p, pair, key, n, next_pair, next_key, rows, at, scores, spare, careful):
        """Process n keys and values for a pair's rows; prefetch the next pair's."""
        d, dv = v.ne(p, Q, 0), v.ne(p, V, 0)
        ahead = kv_address(p, K, next_pair, next_key)
        src, step, ahead = place_keys(p, K, kv_address(p, K, pair, key), ahead, n, d, spare)
        all_dots(rows, query_row(at, rows, 0, d), src, ahead, step, n, d, scores)
        for r in range(rows):
            weigh_row(p, pair, r, key, n, scores + r * 4 * KEYS, at + r * STATE)
        ahead = kv_address(p, V, next_pair, next_key)
        src, step, ahead = place_values(p, V, kv_address(p, V, pair, key), ahead, n, dv, spare)
        to = sum_row(at, rows, 0, d, dv)
        if careful:
            seen_values(rows, scores, at, src, step, n, dv, to)
        else:
            all_values(rows, scores, at, src, ahead, step, n, dv, to)

    return run_tile


def _flash(
    name: str, accepts: Accepts, keys: _Reader, values: _Reader, most: int, rank: int
) -> None:
    """Declare a kernel for the types that `accepts` takes and at most `most` rows."""
    run_tile = _run_tile(keys, values)

    @fn
    def run_pairs(p, first, count, begin, end, rows, local, careful):
        """Process the keys begin .. end for pairs first .. first + count, KEYS keys per pair."""
        spare, pairs, scores = local + SCORES, pair_address(p, local, rows, 0), local
        size = pair_address(p, local, rows, 1) - pairs
        for i in range(count):
            start_pair(p, first + i, rows, pairs + i * size)
        for key in range(begin, end, KEYS):
            for i in range(count):
                n = keys_seen(p, first + i, 0, rows, key, min(KEYS, end - key))
                if n > 0:
                    after = (i + 1) % count
                    next_key, after = key + KEYS if after == 0 else key, first + after
                    at, pair = pairs + i * size, first + i
                    run_tile(p, pair, key, n, after, next_key, rows, at, scores, spare, careful)

    def check(node: Tensor) -> str:
        q, k = node.sources(2)
        rows = q.ne[1] * q.ne[2] // k.ne[2]
        if rows > most:
            return f"needs at most {most} query rows per key head; got {rows}"
        return refusal(node, name, accepts)

    @kernel(
        "FLASH_ATTN_EXT",
        when=check,
        scratch=scratch,
        prepare=(flash_start,),
        extra=extra,
        rank=rank,
        name=f"flash_attn_rows_{name}",
    )
    def flash_attn_rows(p, ith, nth):
        pairs, rows = v.ne(p, K, 2) * v.ne(p, K, 3), v.ne(p, Q, 1) * group_size(p)
        parts, local = count_parts(pairs, v.ne(p, K, 1), nth), v.local(p, ith)
        u, stop = v.split(pairs * parts, ith, nth)
        while u < stop:
            part, first = u // pairs, u % pairs
            count = min(stop - u, pairs - first)
            begin, end = v.split_aligned(v.ne(p, K, 1), KEYS, part, parts)
            careful, again = False, True
            while again:  # a loop with one call, because each call is inlined
                run_pairs(p, first, count, begin, end, rows, local, careful)
                again = not careful and any_spoilt(p, count, rows, pair_address(p, local, rows, 0))
                careful = again
            finish_pairs(p, first, count, rows, part, parts, pair_address(p, local, rows, 0))
            u += count


for _source in SOURCES:
    _element = _source.element
    _reader = (
        _in_place(build_rows(_element)) if _source.name == _element.name else _build_reader(_source)
    )
    _flash(_source.name, _source.accepts, _reader, _reader, FEW, 2)

for _name, _accepts, _keys, _values_of in IN_BLOCKS:
    _flash(_name, _accepts, _in_place(_keys), _in_place(_values_of), DIRECT, 3)

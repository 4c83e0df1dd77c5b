"""FLASH_ATTN_EXT for few tokens: keys and values are read once, where they are, for all rows."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels.common import FLOATS, Element
from ggml_cpu.kernels.flash_parts import (
    EXACT_TOKENS,
    FACTOR,
    KEYS,
    MIN_KEYS,
    STATE,
    WORD,
    K,
    Q,
    V,
    finish_row,
    group_size,
    keys_at,
    keys_seen,
    merge_parts,
    padded,
    partial_bytes,
    query_at,
    refusal,
    scores_scale,
    start_row,
    weigh_row,
)
from ggml_cpu.kernels.sums import lane_sums
from ggml_cpu.target import LANES
from ggml_py.tensor import Tensor

FEW = 8  # rows up to which it pays not to convert keys and values first
AHEAD = 32  # keys ahead that are fetched from memory
# Local scratch: the states of FEW rows, KEYS scores a row, then queries, then sums of values.
SCORES = FEW * STATE
QUERIES = SCORES + FEW * 4 * KEYS


@fn
def parts_of(pairs, n_kv, nth):
    """Parts of the keys, so that threads get equal numbers of (pair, part)."""
    a, b = pairs, nth
    while b > 0:
        a, b = b, a % b
    return max(1, min(nth // a, n_kv // MIN_KEYS))


def scratch(node: Tensor, nth: int) -> tuple[int, int]:
    q, k, values = node.src[:3]
    parts = parts_of(k.ne[2] * k.ne[3], k.ne[1], nth)
    local = QUERIES + FEW * 4 * (padded(q.ne[0]) + padded(values.ne[0]))
    return partial_bytes(node, parts), local


@fn
def query_row(local, r, d):
    return local + QUERIES + r * 4 * padded(d)


@fn
def sum_row(local, r, d, dv):
    return local + QUERIES + FEW * 4 * padded(d) + r * 4 * padded(dv)


def _dots(element: Element, rows: int):
    """Products of `rows` queries with LANES // rows keys at a time."""
    load, load_n, size = element.load, element.load_n, element.size
    at_once = max(1, LANES // rows)

    @fn
    def prefetch_keys(at, stride, d):
        for j in range(at_once):
            for i in range(0, d * size, 64):
                v.prefetch(at + j * stride + i)

    @fn
    def dots(local, first_row, src, stride, n, d, dv):
        """Scores of n keys for the rows from first_row on."""
        q, out = query_row(local, first_row, d), local + SCORES + first_row * 4 * KEYS
        step, whole = 4 * padded(d), d // LANES * LANES
        for first in range(0, n, at_once):
            prefetch_keys(src + (first + AHEAD) * stride, stride, d)
            sums = v.f32_regs(LANES)
            for i in range(0, whole, LANES):
                for j in range(at_once):
                    x = load(src + min(first + j, n - 1) * stride + i * size)
                    for r in range(rows):
                        t = r * at_once + j
                        sums[t] = v.fma(x, v.f32_load(q + r * step + 4 * i), sums[t])
            if whole < d:
                for j in range(at_once):
                    x = load_n(src + min(first + j, n - 1) * stride + whole * size, d - whole)
                    for r in range(rows):
                        t = r * at_once + j
                        sums[t] = v.fma(x, v.f32_load(q + r * step + 4 * whole), sums[t])
            found = lane_sums(sums)
            for r in range(rows):
                for j in range(at_once):
                    v.st_f32(out + 4 * (r * KEYS + first + j), v.lane(found, r * at_once + j))

    return dots


def _values(element: Element, rows: int):
    """Weighted sums of values for `rows` rows, a few vectors at a time."""
    load, load_n, size = element.load, element.load_n, element.size
    columns = max(1, min(4, LANES // rows))
    span, count = columns * LANES, rows * columns

    @fn
    def add_columns(weights, state, src, stride, n, out, step):
        """out[r] = out[r] * factor[r] + sum of weights[r][key] * src[key], for `span` columns."""
        sums = v.f32_regs(count)
        for r in range(rows):
            factor = v.f32_bcast(state + STATE * r + FACTOR)
            for j in range(columns):
                sums[r * columns + j] = v.f32_load(out + r * step + j * WORD) * factor
        for _ in range(n):
            for j in range(0, span * size, 64):
                v.prefetch(src + AHEAD * stride + j)
            for j in range(columns):
                x = load(src + j * LANES * size)
                for r in range(rows):
                    t = r * columns + j
                    sums[t] = v.fma(x, v.f32_bcast(weights + r * 4 * KEYS), sums[t])
            src += stride
            weights += 4
        for r in range(rows):
            for j in range(columns):
                v.store(out + r * step + j * WORD, sums[r * columns + j])

    @fn
    def add_rest(weights, state, src, stride, n, out, left):
        """As add_columns for one row and one vector, `left` columns of which exist."""
        s = v.f32_load(out) * v.f32_bcast(state + FACTOR)
        for key in range(n):
            s = v.fma(load_n(src + key * stride, left), v.f32_bcast(weights + 4 * key), s)
        v.store(out, s)

    @fn
    def add_values(local, first_row, src, stride, n, d, dv):
        """Add n weighted values to the sums of the rows from first_row on."""
        state, weights = local + first_row * STATE, local + SCORES + first_row * 4 * KEYS
        out, step = sum_row(local, first_row, d, dv), 4 * padded(dv)
        i = 0
        while i + span <= dv:
            add_columns(weights, state, src + i * size, stride, n, out + 4 * i, step)
            i += span
        while i < dv:
            for r in range(rows):
                w, s, o = weights + r * 4 * KEYS, state + r * STATE, out + r * step + 4 * i
                add_rest(w, s, src + i * size, stride, n, o, dv - i)
            i += LANES

    return add_values


def _by_fours(make, element: Element):
    """Rows in fours, then two, then one."""
    by_1, by_2, by_4 = (make(element, n) for n in (1, 2, 4))

    @fn
    def run(local, rows, src, stride, n, d, dv):
        r = 0
        while r + 4 <= rows:
            by_4(local, r, src, stride, n, d, dv)
            r += 4
        if r + 2 <= rows:
            by_2(local, r, src, stride, n, d, dv)
            r += 2
        if r < rows:
            by_1(local, r, src, stride, n, d, dv)

    return run


def _load_queries(element: Element):
    store, load = element.store, element.load

    @fn
    def load_queries(p, pair, rows, local):
        """Queries, rounded to the type of the keys as ggml does, times the scale."""
        d, scale = v.ne(p, Q, 0), scores_scale(p)
        for r in range(rows):
            at, to = query_at(p, pair, r), query_row(local, r, d)
            for i in range(0, d, LANES):
                x = v.f32_load_n(at + 4 * i, d - i)
                if v.ne(p, Q, 1) < EXACT_TOKENS:
                    store(to + 4 * i, x)
                    x = load(to + 4 * i)
                v.store(to + 4 * i, x * scale)

    return load_queries


def _flash(k_element: Element, v_element: Element) -> None:
    load_queries = _load_queries(k_element)
    all_dots, all_values = _by_fours(_dots, k_element), _by_fours(_values, v_element)

    @fn
    def unit(p, local, pair, part, parts):
        """All rows of a key head times one part of the keys."""
        d, dv, rows = v.ne(p, Q, 0), v.ne(p, V, 0), v.ne(p, Q, 1) * group_size(p)
        load_queries(p, pair, rows, local)
        for r in range(rows):
            start_row(p, pair, r, local + r * STATE, sum_row(local, r, d, dv), WORD)
        first, stop = v.split_by(v.ne(p, K, 1), KEYS, part, parts)
        for key in range(first, stop, KEYS):
            n = keys_seen(p, pair, 0, rows, key, min(KEYS, stop - key))
            if n > 0:
                all_dots(local, rows, keys_at(p, K, pair, key), v.nb(p, K, 1), n, d, dv)
                for r in range(rows):
                    x = local + SCORES + r * 4 * KEYS
                    weigh_row(p, pair, r, key, n, x, local + r * STATE)
                all_values(local, rows, keys_at(p, V, pair, key), v.nb(p, V, 1), n, d, dv)
        for r in range(rows):
            sums = sum_row(local, r, d, dv)
            finish_row(p, pair, r, part, parts, local + r * STATE, sums, WORD)

    name = f"flash_attn_rows_{k_element.name}_{v_element.name}"

    @kernel(name=f"{name}_parts")
    def flash_parts(p, ith, nth):
        pairs = v.ne(p, K, 2) * v.ne(p, K, 3)
        parts = parts_of(pairs, v.ne(p, K, 1), nth)
        begin, end = v.split(pairs * parts, ith, nth)
        for u in range(begin, end):
            unit(p, v.local(p, ith), u // parts, u % parts, parts)

    def when(node: Tensor) -> str:
        rows = node.src[0].ne[1] * node.src[0].ne[2] // node.src[1].ne[2]
        if rows > FEW:
            return f"needs at most {FEW} query rows a key head; got {rows}"
        return refusal(node, k_element.name, v_element.name)

    @kernel("FLASH_ATTN_EXT", when=when, scratch=scratch, prepare=(flash_parts,), name=name)
    def flash(p, ith, nth):
        merge_parts(p, parts_of(v.ne(p, K, 2) * v.ne(p, K, 3), v.ne(p, K, 1), nth), ith, nth)


for _k in FLOATS:
    for _v in FLOATS:
        _flash(_k, _v)

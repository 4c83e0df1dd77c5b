"""FLASH_ATTN_EXT for few tokens: every key and value is read once, where it is, for all its rows."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels.common import FLOATS
from ggml_cpu.kernels.flash_parts import (
    EXACT_TOKENS,
    KEYS,
    MIN_KEYS,
    WORD,
    K,
    Q,
    V,
    clear_state,
    finish_row,
    group_size,
    head_of,
    keys_at,
    keys_seen,
    mask_at,
    merge_parts,
    padded,
    partial_bytes,
    query_at,
    scores_scale,
    weigh,
)
from ggml_cpu.kernels.soft_max import slope_of
from ggml_cpu.kernels.sums import lane_sums
from ggml_cpu.target import LANES
from ggml_py.tensor import Tensor

AHEAD = 32  # keys ahead that are fetched from memory
FEW = 8  # rows up to which it pays not to convert keys and values first
STATE = 16  # bytes of a row's state: maximum, sum, factor, ALiBi slope


@fn
def parts_of(pairs, n_kv, nth):
    """Parts of the keys, so that threads get equal numbers of (pair, part)."""
    a, b = pairs, nth
    while b > 0:
        a, b = b, a % b
    return max(1, min(nth // a, n_kv // MIN_KEYS))


def _dots(element, rows):
    """Products of `rows` queries with LANES // rows keys at a time."""
    load, load_n, size = element.load, element.load_n, element.size
    at_once = max(1, LANES // rows)

    @fn
    def dots(keys, stride, n, q, q_step, d, out):
        """out[r][key] = <q[r], keys[key]> for n keys; out has KEYS places a row."""
        for first in range(0, n, at_once):
            for j in range(at_once):
                for i in range(0, d * size, 64):
                    v.prefetch(keys + (first + j + AHEAD) * stride + i)
            sums = v.f32_regs(LANES)
            whole = d // LANES * LANES
            for i in range(0, whole, LANES):
                for j in range(at_once):
                    x = load(keys + min(first + j, n - 1) * stride + i * size)
                    for r in range(rows):
                        t = r * at_once + j
                        sums[t] = v.fma(x, v.f32_load(q + r * q_step + 4 * i), sums[t])
            if whole < d:
                for j in range(at_once):
                    at = keys + min(first + j, n - 1) * stride + whole * size
                    x = load_n(at, d - whole)
                    for r in range(rows):
                        t = r * at_once + j
                        sums[t] = v.fma(x, v.f32_load(q + r * q_step + 4 * whole), sums[t])
            found = lane_sums(sums)
            for r in range(rows):
                for j in range(at_once):
                    v.st_f32(out + 4 * (r * KEYS + first + j), v.lane(found, r * at_once + j))

    return dots


def _values(element, rows):
    """Weighted sums of values for `rows` rows."""
    load, load_n, size = element.load, element.load_n, element.size
    columns = max(1, min(4, LANES // rows))
    span, count = columns * LANES, rows * columns

    @fn
    def add_values(values, stride, n, weights, state, out, out_step, dv):
        """out[r] = out[r] * factor[r] + sum of weights[r][key] * values[key] over n keys."""
        i = 0
        while i + span <= dv:
            sums = v.f32_regs(count)
            for r in range(rows):
                factor = v.f32_bcast(state + STATE * r + 8)
                for j in range(columns):
                    sums[r * columns + j] = v.f32_load(out + r * out_step + 4 * i + j * WORD) * factor
            at = values + i * size
            for key in range(n):
                for j in range(0, span * size, 64):
                    v.prefetch(at + AHEAD * stride + j)
                for j in range(columns):
                    x = load(at + j * LANES * size)
                    for r in range(rows):
                        t = r * columns + j
                        sums[t] = v.fma(x, v.f32_bcast(weights + 4 * (r * KEYS + key)), sums[t])
                at += stride
            for r in range(rows):
                for j in range(columns):
                    v.store(out + r * out_step + 4 * i + j * WORD, sums[r * columns + j])
            i += span
        while i < dv:
            for r in range(rows):
                s = v.f32_load(out + r * out_step + 4 * i) * v.f32_bcast(state + STATE * r + 8)
                for key in range(n):
                    x = load_n(values + key * stride + i * size, dv - i)
                    s = v.fma(x, v.f32_bcast(weights + 4 * (r * KEYS + key)), s)
                v.store(out + r * out_step + 4 * i, s)
            i += LANES

    return add_values


def local_bytes(node: Tensor) -> int:
    q, values = node.src[0], node.src[2]
    return FEW * (4 * padded(q.ne[0]) + 4 * padded(values.ne[0]) + 4 * KEYS + STATE)


def n_parts(node: Tensor, nth: int) -> int:
    k = node.src[1]
    return parts_of(k.ne[2] * k.ne[3], k.ne[1], nth)


def scratch(node: Tensor, nth: int) -> tuple[int, int]:
    return partial_bytes(node, n_parts(node, nth)), local_bytes(node)


def _flash(k_element, v_element):
    dots_1, dots_2, dots_4 = (_dots(k_element, n) for n in (1, 2, 4))
    add_1, add_2, add_4 = (_values(v_element, n) for n in (1, 2, 4))
    store, load = k_element.store, k_element.load

    @fn
    def load_queries(p, pair, rows, d, q, q_step):
        """Queries, rounded to the type of the keys as ggml does, times the scale."""
        scale = scores_scale(p)
        for r in range(rows):
            at = query_at(p, pair, r)
            for i in range(0, d, LANES):
                to = q + r * q_step + 4 * i
                x = v.f32_load_n(at + 4 * i, d - i)
                if v.ne(p, Q, 1) < EXACT_TOKENS:
                    store(to, x)
                    x = load(to)
                v.store(to, x * scale)

    @fn
    def all_dots(p, pair, key, n, q, q_step, d, out, rows):
        keys, stride = keys_at(p, K, pair, key), v.nb(p, K, 1)
        r = 0
        while r + 4 <= rows:
            dots_4(keys, stride, n, q + r * q_step, q_step, d, out + 4 * KEYS * r)
            r += 4
        if r + 2 <= rows:
            dots_2(keys, stride, n, q + r * q_step, q_step, d, out + 4 * KEYS * r)
            r += 2
        if r < rows:
            dots_1(keys, stride, n, q + r * q_step, q_step, d, out + 4 * KEYS * r)

    @fn
    def all_values(p, pair, key, n, weights, state, sums, step, rows):
        values, stride, dv = keys_at(p, V, pair, key), v.nb(p, V, 1), v.ne(p, V, 0)
        r = 0
        while r + 4 <= rows:
            w, s, o = weights + 4 * KEYS * r, state + STATE * r, sums + r * step
            add_4(values, stride, n, w, s, o, step, dv)
            r += 4
        if r + 2 <= rows:
            w, s, o = weights + 4 * KEYS * r, state + STATE * r, sums + r * step
            add_2(values, stride, n, w, s, o, step, dv)
            r += 2
        if r < rows:
            w, s, o = weights + 4 * KEYS * r, state + STATE * r, sums + r * step
            add_1(values, stride, n, w, s, o, step, dv)

    @fn
    def start(p, pair, rows, state, sums, step):
        for r in range(rows):
            clear_state(state + STATE * r)
            slope = slope_of(head_of(p, pair, r), v.ne(p, Q, 2), v.op_f32(p, 1))
            v.st_f32(state + STATE * r + 12, slope)
            for i in range(0, step, WORD):
                v.store(sums + r * step + i, v.f32(0.0))

    @fn
    def unit(p, ith, pair, part, parts):
        """All rows of a key head times one part of the keys."""
        d, n_kv, rows = v.ne(p, Q, 0), v.ne(p, K, 1), v.ne(p, Q, 1) * group_size(p)
        q_step, step = 4 * padded(d), 4 * padded(v.ne(p, V, 0))
        q = v.local(p, ith)
        sums = q + rows * q_step
        weights = sums + rows * step
        state = weights + rows * 4 * KEYS
        load_queries(p, pair, rows, d, q, q_step)
        start(p, pair, rows, state, sums, step)
        first, stop = v.split_by(n_kv, KEYS, part, parts)
        for key in range(first, stop, KEYS):
            n = keys_seen(p, pair, 0, rows, key, min(KEYS, stop - key))
            if n > 0:
                all_dots(p, pair, key, n, q, q_step, d, weights, rows)
                for r in range(rows):
                    mask, at = mask_at(p, pair, r), state + STATE * r
                    mask = mask + 2 * key if mask != 0 else 0
                    weigh(weights + 4 * KEYS * r, n, mask, v.ld_f32(at + 12), v.op_f32(p, 2), at)
                all_values(p, pair, key, n, weights, state, sums, step, rows)
        for r in range(rows):
            finish_row(p, pair, r, part, parts, state + STATE * r, sums + r * step, WORD)

    name = f"flash_attn_rows_{k_element.name}_{v_element.name}"

    @kernel(name=f"{name}_parts")
    def flash_parts(p, ith, nth):
        pairs = v.ne(p, K, 2) * v.ne(p, K, 3)
        parts = parts_of(pairs, v.ne(p, K, 1), nth)
        begin, end = v.split(pairs * parts, ith, nth)
        for u in range(begin, end):
            unit(p, ith, u // parts, u % parts, parts)

    def when(node: Tensor) -> str:
        q, k, values = node.src[:3]
        rows = q.ne[1] * q.ne[2] // k.ne[2]
        if rows > FEW:
            return f"needs at most {FEW} query rows a key head; got {rows}"
        if (k.type.name, values.type.name) != (k_element.name, v_element.name):
            return f"needs {k_element.name} keys and {v_element.name} values; got {k}, {values}"
        return ""

    @kernel("FLASH_ATTN_EXT", when=when, scratch=scratch, prepare=(flash_parts,), name=name)
    def flash(p, ith, nth):
        merge_parts(p, parts_of(v.ne(p, K, 2) * v.ne(p, K, 3), v.ne(p, K, 1), nth), ith, nth)


for _k in FLOATS:
    for _v in FLOATS:
        _flash(_k, _v)

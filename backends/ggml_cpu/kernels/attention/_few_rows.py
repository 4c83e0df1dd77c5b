"""Scores of keys and weighted sums of values for a few query rows (flash_rows.py).

Kernels read the cache row by row. Scores are f32 [rows][KEYS] and become weights in place; queries
and sums are f32 [rows][pad_to_lanes(d)].
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import Function, fn, routine
from ggml_cpu.kernels._common import pad_to_lanes
from ggml_cpu.kernels._sums import lane_sums
from ggml_cpu.kernels.attention._parts import FACTOR, KEYS, STATE
from ggml_cpu.kernels.attention._sources import WORD, Rows
from ggml_cpu.target import LANES


def _dots(source: Rows, rows: int) -> Function:
    """Return dots(...), which multiplies `rows` queries by LANES // rows keys at a time."""
    block, element_bytes, load, load_n = source
    at_once = LANES // rows

    @fn
    def store_parts(found, out):
        """Store the scores in the lanes of `found` to the rows of `out`."""
        if rows == 2:
            v.store(out, v.low(found))
            v.store(out + 4 * KEYS, v.high(found))
        else:
            for r in range(rows):
                for j in range(at_once):
                    v.st_f32(out + 4 * (r * KEYS + j), v.lane(found, r * at_once + j))

    @fn
    def score_keys(q, src, ahead, stride, d, out):
        """Compute the scores of `at_once` keys, `stride` bytes apart."""
        step, whole = 4 * pad_to_lanes(d), d // block * block
        sums = v.f32_regs(LANES)
        for i in range(0, whole, block):
            for j in range(at_once):
                at = j * stride + element_bytes(i)
                v.prefetch(ahead + at)
                for h in range(0, block, LANES):
                    x = load(src + at, h)
                    for r in range(rows):
                        t = r * at_once + j
                        sums[t] = v.fma(x, v.f32_load(q + r * step + 4 * (i + h)), sums[t])
        for i in range(whole, d, LANES):
            for j in range(at_once):
                x = load_n(src + j * stride + element_bytes(i), 0, d - i)
                for r in range(rows):
                    t = r * at_once + j
                    sums[t] = v.fma(x, v.f32_load(q + r * step + 4 * i), sums[t])
        store_parts(lane_sums(sums), out)

    @routine
    def dots(q, src, ahead, stride, n, d, out):
        """Compute the scores of n keys and prefetch the keys at `ahead`.

        The last group of keys may overlap the one before. Fewer than `at_once` keys are multiplied
        one by one; this also overwrites some scores after the n-th.
        """
        count, apart = (at_once, stride) if n >= at_once else (1, 0)
        for key in range(0, n, count):
            first = min(key, n - count)
            at = first * stride
            score_keys(q, src + at, ahead + at, apart, d, out + 4 * first)

    return dots


def _values(source: Rows, rows: int) -> Function:
    """Return add_values(...): weighted sums of values for `rows` rows, a few vectors at a time."""
    block, element_bytes, load, load_n = source
    columns = min(4, LANES // rows)
    span, count = columns * LANES, rows * columns

    @fn
    def add_columns(weights, state, src, i, ahead, stride, n, out, step):
        """Compute out[r] = out[r] * factor[r] + sum of weights[r][key] * src[key].

        This covers `span` columns, from element i of the block at src on.
        """
        sums = v.f32_regs(count)
        for r in range(rows):
            factor = v.f32_bcast(state + STATE * r + FACTOR)
            for j in range(columns):
                sums[r * columns + j] = v.f32_load(out + r * step + j * WORD) * factor
        for key in range(n):
            at = src + key * stride
            for j in range(0, element_bytes(max(span, block)), 64):
                v.prefetch(ahead + key * stride + j)
            for j in range(columns):
                x = load(at, i + j * LANES)
                for r in range(rows):
                    t = r * columns + j
                    sums[t] = v.fma(x, v.f32_bcast(weights + 4 * (r * KEYS + key)), sums[t])
        for r in range(rows):
            for j in range(columns):
                v.store(out + r * step + j * WORD, sums[r * columns + j])

    @fn
    def add_rest(weights, state, src, i, stride, n, out, left):
        """Do the same as add_columns for one row and one vector with `left` valid columns."""
        s = v.f32_load(out) * v.f32_bcast(state + FACTOR)
        for key in range(n):
            s = v.fma(load_n(src + key * stride, i, left), v.f32_bcast(weights + 4 * key), s)
        v.store(out, s)

    @routine
    def add_values(weights, state, src, ahead, stride, n, dv, out):
        """Rescale the sums, add n weighted values and prefetch the values at `ahead`."""
        step, i = 4 * pad_to_lanes(dv), 0
        while i + span <= dv:
            to, h = out + 4 * i, 0 if span % block == 0 else i % block
            shift = element_bytes(i - h)
            add_columns(weights, state, src + shift, h, ahead + shift, stride, n, to, step)
            i += span
        while i < dv:
            for r in range(rows):
                w, s, o = weights + r * 4 * KEYS, state + r * STATE, out + r * step + 4 * i
                add_rest(w, s, src + element_bytes(i - i % block), i % block, stride, n, o, dv - i)
            i += LANES

    return add_values


def build_seen_values(source: Rows) -> Function:
    block, element_bytes, _, load_n = source

    @routine
    def seen_values(rows, weights, state, src, stride, n, dv, out):
        """Do the same as all_values, but skip values of weight 0, which may be NaN."""
        for r in range(rows):
            for i in range(0, dv, LANES):
                to = out + 4 * (r * pad_to_lanes(dv) + i)
                s = v.f32_load(to) * v.f32_bcast(state + STATE * r + FACTOR)
                for key in range(n):
                    weight = v.ld_f32(weights + 4 * (r * KEYS + key))
                    if weight != 0.0:
                        at = src + key * stride + element_bytes(i - i % block)
                        s = v.fma(load_n(at, i % block, dv - i), weight, s)
                v.store(to, s)

    return seen_values


def build_all_dots(source: Rows) -> Function:
    dots_2, dots_4 = _dots(source, 2), _dots(source, 4)

    @fn
    def all_dots(rows, q, src, ahead, stride, n, d, out):
        """Process rows in fours, then two; an odd number of rows includes one padding row."""
        r = 0
        while rows - r > 2:
            dots_4(q + r * 4 * pad_to_lanes(d), src, ahead, stride, n, d, out + r * 4 * KEYS)
            r += 4
        if r < rows:
            dots_2(q + r * 4 * pad_to_lanes(d), src, ahead, stride, n, d, out + r * 4 * KEYS)

    return all_dots


def build_all_values(source: Rows) -> Function:
    add_2, add_4 = _values(source, 2), _values(source, 4)

    @fn
    def all_values(rows, weights, state, src, ahead, stride, n, dv, out):
        """Process rows in fours, then two; an odd number of rows includes one padding row."""
        r = 0
        while rows - r > 2:
            w, s, o = weights + r * 4 * KEYS, state + r * STATE, out + r * 4 * pad_to_lanes(dv)
            add_4(w, s, src, ahead, stride, n, dv, o)
            r += 4
        if r < rows:
            w, s, o = weights + r * 4 * KEYS, state + r * STATE, out + r * 4 * pad_to_lanes(dv)
            add_2(w, s, src, ahead, stride, n, dv, o)

    return all_values

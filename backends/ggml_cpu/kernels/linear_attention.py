"""RWKV_WKV6, GATED_LINEAR_ATTN: a matrix per head as state, its value index fast."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel


@fn
def per_sequence(p, k, state):
    """Tokens of a sequence; k: a source [S, H, T]."""
    return v.ne(p, k, 2) // v.ne(p, state, 1)


@fn
def state_after(p, head, seq):
    """The head's state behind the outputs [S, H, T] of dst."""
    size, n_head, n_tokens = v.ne(p, 1, 0), v.ne(p, 1, 1), v.ne(p, 1, 2)
    return v.data(p, 0) + 4 * size * (n_head * n_tokens + size * (seq * n_head + head))


@fn
def state_before(p, state, head, seq):
    size, n_head = v.ne(p, 1, 0), v.ne(p, 1, 1)
    return v.data(p, state) + 4 * size * size * (seq * n_head + head)


def _by_value(op, state, run_token):
    """The value index of the state is fast: threads take LANES values of a head each.

    run_token(p, at, old, new, c, n): one token whose rows are at byte `at` of the sources.
    """

    @kernel(op, name=f"{op.lower()}_f32")
    def scan(p, ith, nth):
        size, n_head, n_tokens = v.ne(p, 1, 0), v.ne(p, 1, 1), per_sequence(p, 1, state)
        blocks = (size + v.LANES - 1) // v.LANES
        start, stop = v.split(blocks * n_head * v.ne(p, state, 1), ith, nth)
        for u in range(start, stop):
            c, head, seq = u % blocks * v.LANES, u // blocks % n_head, u // (blocks * n_head)
            new = state_after(p, head, seq) + 4 * c
            old = state_before(p, state, head, seq) + 4 * c
            for t in range(seq * n_tokens, (seq + 1) * n_tokens):
                at = 4 * size * (t * n_head + head)
                y = run_token(p, at, 4 * size * head, old, new, c, size)
                v.store_n(v.data(p, 0) + at + 4 * c, y, size - c)
                old = new


@fn
def wkv6_token(p, at, head_at, old, new, c, n):
    values = v.f32_load_n(v.data(p, 2) + at + 4 * c, n - c)
    k, r, decay = v.data(p, 1) + at, v.data(p, 3) + at, v.data(p, 5) + at
    first = v.data(p, 4) + head_at
    y = v.f32(0.0)
    for i in range(n):
        m = v.f32_load_n(old + 4 * i * n, n - c)
        kv = values * v.f32_bcast(k + 4 * i)
        y = v.fma(v.fma(kv, v.f32_bcast(first + 4 * i), m), v.f32_bcast(r + 4 * i), y)
        v.store_n(new + 4 * i * n, v.fma(m, v.f32_bcast(decay + 4 * i), kv), n - c)
    return y


@fn
def gla_token(p, at, head_at, old, new, c, n):
    values = v.f32_load_n(v.data(p, 2) + at + 4 * c, n - c)
    k, q, gate = v.data(p, 1) + at, v.data(p, 3) + at, v.data(p, 4) + at
    y = v.f32(0.0)
    for i in range(n):
        m = v.f32_load_n(old + 4 * i * n, n - c) * v.f32_bcast(gate + 4 * i)
        m = v.fma(values, v.f32_bcast(k + 4 * i), m)
        y = v.fma(m, v.f32_bcast(q + 4 * i), y)
        v.store_n(new + 4 * i * n, m, n - c)
    return y * v.op_f32(p, 0)


_by_value("RWKV_WKV6", 6, wkv6_token)
_by_value("GATED_LINEAR_ATTN", 5, gla_token)

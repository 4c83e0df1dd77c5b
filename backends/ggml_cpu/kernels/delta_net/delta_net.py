"""DELTA_NET of ik_llama.cpp: a vector holds LANES values of one key; a thread takes whole heads."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels._moves import copy_bytes
from ggml_py.tensor import Tensor

Q, K, V, G, B, STATE, SAVED = 1, 2, 3, 4, 5, 6, 7
LARGEST = 1e6
LARGEST_GATE = 50.0


def scratch(node: Tensor, nth: int) -> tuple[int, int]:
    """Return scratch bytes (shared, local); local: the decay of each key."""
    return 0, 4 * node.source(2).ne[0]


@fn
def key_address(p, k, t, head, seq):
    """Return the address of the row of q or k that value head `head` uses."""
    n = v.ne(p, k, 2)
    i = head % n if v.op_i32(p, 0) == 1 else head // (v.ne(p, V, 2) // n)
    return v.data(p, k) + t * v.nb(p, k, 1) + i * v.nb(p, k, 2) + seq * v.nb(p, k, 3)


@fn
def make_decays(p, t, head, seq, to):
    size, shared = v.ne(p, V, 0), v.ne(p, G, 1) == 1
    at = v.data(p, G) + t * v.nb(p, G, 0) + head * v.nb(p, G, 2) + seq * v.nb(p, G, 3)
    decay = v.expf(min(v.ld_f32(at), v.float32(LARGEST_GATE)))
    for i in range(size):
        if i > 0 and not shared:
            gate = v.ld_f32(at + i * v.nb(p, G, 1))
            decay = v.expf(min(gate, v.float32(LARGEST_GATE)))
        v.st_f32(to + 4 * i, decay)


@fn
def product(a, b, n):
    total = v.f32(0.0)
    for i in range(0, n, v.LANES):
        total = v.fma(v.f32_load_n(a + 4 * i, n - i), v.f32_load_n(b + 4 * i, n - i), total)
    return v.vsum(total)


@fn
def step_values(old, new, q, k, decays, size, rest, values, beta, kq):
    """Update up to LANES values of the state by one token; return their unscaled outputs."""
    found = v.f32(0.0)
    out = v.f32(0.0)
    for i in range(size):
        m = v.f32_load_n(old + 4 * i * size, rest) * v.f32_bcast(decays + 4 * i)
        found = v.fma(m, v.f32_bcast(k + 4 * i), found)
        out = v.fma(m, v.f32_bcast(q + 4 * i), out)
        v.store_n(new + 4 * i * size, m, rest)
    delta = (values - found) * beta
    for i in range(size):
        m = v.f32_load_n(new + 4 * i * size, rest)
        m = v.fma(delta, v.f32_bcast(k + 4 * i), m)
        v.store_n(new + 4 * i * size, v.vmax(v.vmin(m, LARGEST), -LARGEST), rest)
    return v.fma(delta, v.f32(kq), out)


@fn
def run_head(p, head, seq, decays):
    size, n_tokens, n_head, n_seqs = v.ne(p, V, 0), v.ne(p, V, 1), v.ne(p, V, 2), v.ne(p, V, 3)
    scale = v.float32(1.0) / v.sqrtf(v.float32(size))
    states, shift = 4 * size * size * n_head * n_seqs, 4 * size * size * (seq * n_head + head)
    old = v.data(p, STATE) + shift
    new = v.data(p, 0) + 4 * size * n_tokens * n_head * n_seqs + shift
    for t in range(n_tokens):
        make_decays(p, t, head, seq, decays)
        q, k = key_address(p, Q, t, head, seq), key_address(p, K, t, head, seq)
        beta = v.data(p, B) + t * v.nb(p, B, 1) + head * v.nb(p, B, 2) + seq * v.nb(p, B, 3)
        beta = v.float32(1.0) / (v.float32(1.0) + v.expf(-v.ld_f32(beta)))
        values = v.data(p, V) + t * v.nb(p, V, 1) + head * v.nb(p, V, 2) + seq * v.nb(p, V, 3)
        kq = product(k, q, size)
        to = v.data(p, 0) + 4 * size * ((seq * n_tokens + t) * n_head + head)
        for c in range(0, size, v.LANES):
            x, rest = v.f32_load_n(values + 4 * c, size - c), size - c
            y = step_values(old + 4 * c, new + 4 * c, q, k, decays, size, rest, x, beta, kq)
            v.store_n(to + 4 * c, y * scale, rest)
        old = new
        if v.data(p, SAVED) != 0 and t < n_tokens - 1:
            copy_bytes(v.data(p, SAVED) + t * states + shift, new, 4 * size * size)


@kernel("DELTA_NET", scratch=scratch)
def delta_net_f32(p, ith, nth):
    n_head = v.ne(p, V, 2)
    start, stop = v.split(n_head * v.ne(p, V, 3), ith, nth)
    for u in range(start, stop):
        run_head(p, u % n_head, u // n_head, v.local(p, ith))

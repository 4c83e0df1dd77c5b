"""RWKV_WKV6, GATED_LINEAR_ATTN: the state is one matrix per head, with a contiguous value index."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import Function, fn, kernel
from ggml_cpu.kernels._states import state_address

CHAINS = 4  # independent accumulators per output


@fn
def per_sequence(p, k, state):
    """Return the number of tokens per sequence; k: index of a source [S, H, T]."""
    return v.ne(p, k, 2) // v.ne(p, state, 1)


@fn
def final_state_address(p, head, seq):
    """Return the address of the head's final state, stored after the outputs [S, H, T] of dst."""
    size, n_head, n_tokens = v.ne(p, 1, 0), v.ne(p, 1, 1), v.ne(p, 1, 2)
    return v.data(p, 0) + 4 * size * (n_head * n_tokens + size * (seq * n_head + head))


@fn
def initial_state_address(p, state, head, seq):
    size, n_head = v.ne(p, 1, 0), v.ne(p, 1, 1)
    return v.data(p, state) + 4 * size * size * (seq * n_head + head)


@fn
def snapshot_address(p, target, slot, head, seq):
    """Return the address for the head's state `slot` tokens before the last."""
    size, n_head, n_seqs = v.ne(p, 1, 0), v.ne(p, 1, 1), v.ne(p, target - 1, 1)
    row = size * size * n_head
    if v.data(p, target) != 0:
        return state_address(p, target, slot, seq, row, n_seqs) + 4 * size * size * head
    return final_state_address(p, head, seq) + 4 * row * n_seqs * slot


def _by_value(op: str, state: int, run_key: Function, n_earlier: int = 0) -> None:
    """Declare the kernel of `op`: a thread processes LANES values of one head at a time.

    Args:
        op: Name of the op.
        state: Index of the source with the initial states.
        run_key: run_key(p, at, head_at, i, old, new, values, y, rest): update row i of the state
            by one token and return y plus the row's output. `at` is the byte offset of the token's
            sources, `head_at` the byte offset of the head, `rest` the number of values.
        n_earlier: Index of the op param `n_earlier`; if it is not 0, op param 0 is the scale.
    """

    @fn
    def run_token(p, at, head_at, old, new, values, rest):
        """Return a token's outputs; CHAINS independent sums hide the latency of the FMA."""
        n = v.ne(p, 1, 0)
        y = v.f32_regs(CHAINS)
        whole = n // CHAINS * CHAINS
        for i in range(0, whole, CHAINS):
            for j in range(CHAINS):
                row = 4 * (i + j) * n
                y[j] = run_key(p, at, head_at, i + j, old + row, new + row, values, y[j], rest)
        for i in range(whole, n):
            row = 4 * i * n
            y[0] = run_key(p, at, head_at, i, old + row, new + row, values, y[0], rest)
        total = (y[0] + y[1]) + (y[2] + y[3])
        return total * v.op_f32(p, 0) if n_earlier else total

    @fn
    def run_block(p, c, head, seq, rest):
        size, n_head, n_tokens = v.ne(p, 1, 0), v.ne(p, 1, 1), per_sequence(p, 1, state)
        n_slots = v.op_i32(p, n_earlier) + 1
        old = initial_state_address(p, state, head, seq) + 4 * c
        for u in range(n_tokens):
            slot = n_tokens - 1 - u
            new = snapshot_address(p, state + 1, slot if slot < n_slots else 0, head, seq) + 4 * c
            at = 4 * size * ((seq * n_tokens + u) * n_head + head)
            values = v.f32_load_n(v.data(p, 2) + at + 4 * c, rest)
            y = run_token(p, at, 4 * size * head, old, new, values, rest)
            v.store_n(v.data(p, 0) + at + 4 * c, y, rest)
            old = new

    @kernel(op, name=f"{op.lower()}_f32")
    def scan(p, ith, nth):
        size, n_head = v.ne(p, 1, 0), v.ne(p, 1, 1)
        blocks = (size + v.LANES - 1) // v.LANES
        start, stop = v.split(blocks * n_head * v.ne(p, state, 1), ith, nth)
        for u in range(start, stop):
            c, head, seq = u % blocks * v.LANES, u // blocks % n_head, u // (blocks * n_head)
            if c + v.LANES <= size:
                run_block(p, c, head, seq, v.LANES)
            else:
                run_block(p, c, head, seq, size - c)


@fn
def wkv6_key(p, at, head_at, i, old, new, values, y, rest):
    k, r = v.f32_bcast(v.data(p, 1) + at + 4 * i), v.f32_bcast(v.data(p, 3) + at + 4 * i)
    first, decay = v.data(p, 4) + head_at + 4 * i, v.data(p, 5) + at + 4 * i
    m, kv = v.f32_load_n(old, rest), values * k
    v.store_n(new, v.fma(m, v.f32_bcast(decay), kv), rest)
    return v.fma(v.fma(kv, v.f32_bcast(first), m), r, y)


@fn
def gla_key(p, at, head_at, i, old, new, values, y, rest):
    k, q = v.f32_bcast(v.data(p, 1) + at + 4 * i), v.f32_bcast(v.data(p, 3) + at + 4 * i)
    m = v.f32_load_n(old, rest) * v.f32_bcast(v.data(p, 4) + at + 4 * i)
    m = v.fma(values, k, m)
    v.store_n(new, m, rest)
    return v.fma(m, q, y)


_by_value("RWKV_WKV6", 6, wkv6_key)
_by_value("GATED_LINEAR_ATTN", 5, gla_key, n_earlier=1)

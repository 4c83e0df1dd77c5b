"""Where GATED_DELTA_NET finds what it reads of a head, and where it leaves its results."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.faults import index_or_0
from ggml_cpu.kernel import fn
from ggml_cpu.kernels._common import padded
from ggml_cpu.kernels._states import row_at

Q, K, V, G, B, STATE = 1, 2, 3, 4, 5, 6
TARGET, ROW = 7, 8  # of fused steps: where states go; STATE is a cache, of which this row is read


@fn
def vector_bytes(size: int) -> int:
    """Of a token's decayed keys, decayed queries and decays, which follow each other."""
    return 4 * padded(size)


@fn
def key_at(p, k, head, seq, t):
    """Address of a row of q or k: value head h uses key head h mod H_k."""
    i1, i3 = head % v.ne(p, k, 1), seq // (v.ne(p, V, 3) // v.ne(p, k, 3))
    return v.data(p, k) + i1 * v.nb(p, k, 1) + t * v.nb(p, k, 2) + i3 * v.nb(p, k, 3)


@fn
def value_at(p, k, head, seq, t):
    """Address of a row of v, g or beta."""
    return v.data(p, k) + head * v.nb(p, k, 1) + t * v.nb(p, k, 2) + seq * v.nb(p, k, 3)


@fn
def output_at(p, head, seq, t):
    size, n_head, n_tokens = v.ne(p, V, 0), v.ne(p, V, 1), v.ne(p, V, 2)
    return v.data(p, 0) + 4 * size * ((seq * n_tokens + t) * n_head + head)


@fn
def source_at(p, head, seq):
    """The head's state before the first token."""
    if v.data(p, ROW) != 0:
        size = v.ne(p, V, 0)
        row = index_or_0(p, v.ld_i32(v.data(p, ROW)), v.ne(p, STATE, 1))
        return v.data(p, STATE) + row * v.nb(p, STATE, 1) + 4 * head * size * size
    return v.data(p, STATE) + head * v.nb(p, STATE, 2) + seq * v.nb(p, STATE, 3)


@fn
def snapshot_at(p, slot, head, seq):
    """Where the head's state of `slot` tokens before the last goes."""
    size, n_head, n_tokens, n_seqs = v.ne(p, V, 0), v.ne(p, V, 1), v.ne(p, V, 2), v.ne(p, V, 3)
    if v.data(p, TARGET) != 0:
        at = row_at(p, TARGET, slot, seq, size * size * n_head, n_seqs)
        return at + head * 4 * size * size
    outputs = size * n_head * n_tokens * n_seqs
    return v.data(p, 0) + 4 * (outputs + ((slot * n_seqs + seq) * n_head + head) * size * size)


@fn
def first_decay(p, head, seq, t):
    """exp(gate) where one gate serves all keys."""
    return v.vexp(v.f32_bcast(value_at(p, G, head, seq, t)))


@fn
def decay_of(p, head, seq, t, i, first):
    """exp(gate) of the keys from i on."""
    if v.ne(p, G, 0) == 1:
        return first
    return v.vexp(v.f32_load_n(value_at(p, G, head, seq, t) + 4 * i, v.ne(p, G, 0) - i))


@fn
def prefetch_token(p, head, seq, t):
    for i in range(0, 4 * v.ne(p, V, 0), 64):
        v.prefetch(key_at(p, K, head, seq, t) + i)
        v.prefetch(key_at(p, Q, head, seq, t) + i)
        v.prefetch(value_at(p, V, head, seq, t) + i)

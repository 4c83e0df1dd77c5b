"""Addresses of the inputs, states and outputs of a GATED_DELTA_NET head."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.faults import index_or_0
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels._common import pad_to_lanes
from ggml_cpu.kernels._moves import copy_bytes
from ggml_cpu.kernels._states import is_overwritten, state_address

Q, K, V, G, B, STATE = 1, 2, 3, 4, 5, 6
TARGET, ROWS = 7, 8  # fused steps: destination of states, i32 rows of the cache STATE to read


@fn
def vector_bytes(size: int) -> int:
    """Return the bytes of one vector of a token's table, padded to whole SIMD vectors.

    The vectors are the decayed keys, decayed queries and decays, in this order.
    """
    return 4 * pad_to_lanes(size)


@fn
def key_address(p, k, head, seq, t):
    """Return the address of a row of q or k: value head h uses key head h mod H_k."""
    i1, i3 = head % v.ne(p, k, 1), seq // (v.ne(p, V, 3) // v.ne(p, k, 3))
    return v.data(p, k) + i1 * v.nb(p, k, 1) + t * v.nb(p, k, 2) + i3 * v.nb(p, k, 3)


@fn
def value_address(p, k, head, seq, t):
    """Return the address of a row of v, g or beta."""
    return v.data(p, k) + head * v.nb(p, k, 1) + t * v.nb(p, k, 2) + seq * v.nb(p, k, 3)


@fn
def output_address(p, head, seq, t):
    size, n_head, n_tokens = v.ne(p, V, 0), v.ne(p, V, 1), v.ne(p, V, 2)
    return v.data(p, 0) + 4 * size * ((seq * n_tokens + t) * n_head + head)


@fn
def state_size(p):
    """Return the elements of a sequence's states, all heads together."""
    return v.ne(p, V, 0) * v.ne(p, V, 0) * v.ne(p, V, 1)


@fn
def behind_outputs(p, slot, seq):
    outputs = v.ne(p, V, 0) * v.ne(p, V, 1) * v.ne(p, V, 2) * v.ne(p, V, 3)
    return v.data(p, 0) + 4 * (outputs + (slot * v.ne(p, V, 3) + seq) * state_size(p))


@fn
def cell_address(p, seq):
    """Return the address of a sequence's initial states in the cache."""
    row = index_or_0(p, v.ld_i32(v.data(p, ROWS) + 4 * seq), v.ne(p, STATE, 1))
    return v.data(p, STATE) + row * v.nb(p, STATE, 1)


@fn
def comes_too_late(p, seq):
    """Return True if another sequence's states overwrite the initial states of `seq`."""
    n_seqs, n_slots = v.ne(p, V, 3), max(1, min(v.ne(p, V, 2), v.op_i32(p, 0)))
    if n_seqs == 1:
        return False
    return is_overwritten(p, TARGET, cell_address(p, seq), seq, state_size(p), n_seqs, n_slots)


@kernel(name="gated_delta_net_sources")
def keep_sources(p, ith, nth):
    """Save initial states that another sequence would overwrite.

    They are copied to the space for states after the outputs. This step runs before states are
    written to the cache that holds the initial states.
    """
    start, stop = v.split(state_size(p), ith, nth)
    for seq in range(v.ne(p, V, 3)):
        if comes_too_late(p, seq):
            to = behind_outputs(p, 0, seq) + 4 * start
            copy_bytes(to, cell_address(p, seq) + 4 * start, 4 * (stop - start))


@fn
def initial_state_address(p, head, seq):
    """Return the address of the head's state before the first token."""
    if v.data(p, ROWS) != 0:
        before = behind_outputs(p, 0, seq) if comes_too_late(p, seq) else cell_address(p, seq)
        return before + 4 * head * v.ne(p, V, 0) * v.ne(p, V, 0)
    return v.data(p, STATE) + head * v.nb(p, STATE, 2) + seq * v.nb(p, STATE, 3)


@fn
def snapshot_address(p, slot, head, seq):
    """Return the address for the head's state `slot` tokens before the last."""
    shift = 4 * head * v.ne(p, V, 0) * v.ne(p, V, 0)
    if v.data(p, TARGET) != 0:
        return state_address(p, TARGET, slot, seq, state_size(p), v.ne(p, V, 3)) + shift
    return behind_outputs(p, slot, seq) + shift


@fn
def first_decay(p, head, seq, t):
    """Return exp(gate) in all lanes, for one gate shared by all keys."""
    return v.vexp(v.f32_bcast(value_address(p, G, head, seq, t)))


@fn
def compute_decay(p, head, seq, t, i, first):
    """Return exp(gate) of up to LANES keys from i; first: result of `first_decay`."""
    if v.ne(p, G, 0) == 1:
        return first
    return v.vexp(v.f32_load_n(value_address(p, G, head, seq, t) + 4 * i, v.ne(p, G, 0) - i))


@fn
def prefetch_token(p, head, seq, t):
    for i in range(0, 4 * v.ne(p, V, 0), 64):
        v.prefetch(key_address(p, K, head, seq, t) + i)
        v.prefetch(key_address(p, Q, head, seq, t) + i)
        v.prefetch(value_address(p, V, head, seq, t) + i)

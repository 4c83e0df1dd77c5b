"""GATED_DELTA_NET: state rows are independent, so threads split heads, or rows within a head.

_chunks.py processes many tokens in chunks. _tokens.py processes the remaining tokens, and tokens
with state snapshots, one at a time; for several tokens and rows of 128 elements it uses _both.py.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels._moves import copy_bytes
from ggml_cpu.kernels._units import COUNTER, PER_THREAD, own_unit, start_units
from ggml_cpu.kernels.delta_net import _chunks, _tokens
from ggml_cpu.kernels.delta_net._chunks import CHUNK, MAX_SIZE, MIN_CHUNKS, run_chunks
from ggml_cpu.kernels.delta_net._gated import V, initial_state_address, snapshot_address
from ggml_cpu.kernels.delta_net._tokens import run_tokens
from ggml_cpu.target import LANES
from ggml_py.tensor import Tensor


@fn
def count_parts(heads, size, nth):
    """Return the number of parts per head, so that all threads have work."""
    if nth == 1:
        return 1
    wanted = (PER_THREAD * nth + heads - 1) // heads
    return max(1, min(wanted, (size + LANES - 1) // LANES))


def scratch(node: Tensor, nth: int) -> tuple[int, int]:
    """Return scratch bytes (shared, local).

    Shared: the unit counters. Local: the larger need of the chunked and the one-token algorithm.
    """
    size = node.source(2).ne[0]
    chunked = _chunks.local_bytes(size) if size <= MAX_SIZE else 0
    return COUNTER * nth, max(chunked, _tokens.local_bytes(size))


@fn
def keep_rows(p, head, seq, first, stop):
    """Copy rows first..stop of the initial state to the result, for a node without tokens."""
    row = 4 * v.ne(p, V, 0)
    old, new = initial_state_address(p, head, seq), snapshot_address(p, 0, head, seq)
    copy_bytes(new + first * row, old + first * row, (stop - first) * row)


@kernel("GATED_DELTA_NET", scratch=scratch, prepare=(start_units,))
def gated_delta_net_f32(p, ith, nth):
    size, n_head, n_tokens = v.ne(p, V, 0), v.ne(p, V, 1), v.ne(p, V, 2)
    heads = n_head * v.ne(p, V, 3)
    parts = count_parts(heads, size, nth)
    n_slots = v.op_i32(p, 0)
    n_chunks = max(0, n_tokens - n_slots if n_slots > 1 else n_tokens) // CHUNK
    if size > MAX_SIZE or n_chunks < MIN_CHUNKS:
        n_chunks = 0
    u = own_unit(p, ith, nth, heads * parts)
    while u < heads * parts:
        head, seq = u // parts % n_head, u // (parts * n_head)
        first, stop = v.split_aligned(size, LANES, u % parts, parts)
        if n_tokens == 0:
            keep_rows(p, head, seq, first, stop)
        if n_chunks > 0:
            run_chunks(p, head, seq, first, stop, n_chunks, v.local(p, ith))
        run_tokens(p, head, seq, first, stop, n_chunks * CHUNK, v.local(p, ith))
        u = own_unit(p, ith, nth, heads * parts)

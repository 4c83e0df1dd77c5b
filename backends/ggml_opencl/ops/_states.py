"""Recurrent states: size limit per work-item, and the tensors that kernels write them to."""

from __future__ import annotations

from ggml_py.tensor import Tensor

LARGEST_STATE = 256  # maximum values of a state that a work-item holds


def small_state(index: int, what: str) -> str:
    return f"needs states of at most {LARGEST_STATE} per {what}; got {index}"


def view_new_states(node: Tensor, n_outputs: int, size: int, n_seqs: int, n_states: int) -> Tensor:
    """Return the part of a result after its outputs, the states [size, n_seqs, n_states]."""
    t = Tensor(node.type, (size, n_seqs, n_states))
    t.buffer, t.offset = node.buffer, node.offset + n_outputs * node.type.type_size
    return t


def view_cache_rows(kept: Tensor, size: int, n_seqs: int, n_states: int) -> Tensor:
    """Return the cache rows that CPY copies states to, [size, n_seqs, n_states]."""
    shape = (size, n_seqs, n_states, 1)
    if kept.ne == shape:
        return kept
    t = Tensor(kept.type, shape)
    t.buffer, t.offset = kept.buffer, kept.offset
    return t


def view_states(cache: Tensor, *ne: int) -> Tensor:
    """Return the rows of a cache as states [*ne, n_rows]."""
    t = Tensor(cache.type, (*ne, cache.ne[1]))
    t.buffer, t.offset = cache.buffer, cache.offset
    return t

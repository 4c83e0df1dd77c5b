"""Sequences in files: tokens, memory, and snapshots."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ggml_py.errors import ContextError
from llama_py.context.state import begin, naming, open_state, seal
from llama_py.decoding.prefix_cache.cache import PrefixCache
from llama_py.gguf.metadata import printable
from llama_py.support.whole_file import replace_file

WHAT = "saved sequence"


def save_slot(reuse: PrefixCache, path: str | Path, seq_id: int = 0) -> int:
    """Write a sequence to a file atomically, and return its size in bytes. ContextError if the
    sequence has unknown tokens."""
    return replace_file(path, serialize_slot(reuse, seq_id))


def serialize_slot(reuse: PrefixCache, seq_id: int = 0) -> list[bytes | memoryview]:
    """Return the parts of a saved sequence: its tokens, memory and checkpoints. ContextError if it
    has unknown tokens."""
    memory, tokens = reuse.ctx.memory, reuse.tokens(seq_id)
    held = memory.seq_pos_max(seq_id) + 1
    if len(tokens) != held:
        raise ContextError(
            f"sequence {seq_id} cannot be saved: only {len(tokens)} of its {held} tokens are "
            "known; decode with PrefixCache.decode, or call PrefixCache.hold"
        )
    io = begin(reuse.ctx, WHAT)
    io.text(str(reuse.ctx.adapter_key(seq_id)))
    io.array(np.asarray(tokens, np.int32))
    memory.state_write(io, seq_id)
    kept = reuse.snapshots.find_states(seq_id)
    io.count(len(kept))
    for at, state in kept:
        io.count(at.end)
        io.count(state.marked)
        io.blob(np.frombuffer(state.data, np.uint8))
    return seal(io)


def load_slot(reuse: PrefixCache, path: str | Path, seq_id: int = 0) -> list[int]:
    """Load a sequence from a file, replacing a sequence; returns its tokens.

    Raises ContextError, which names the file, if it is damaged or belongs to another model or
    layout, without a change; if the context is too small, the sequence is empty afterwards.
    """
    with naming(path):
        return restore_slot(reuse, Path(path).read_bytes(), seq_id)


def restore_slot(reuse: PrefixCache, data: bytes | memoryview, seq_id: int = 0) -> list[int]:
    """Do `load_slot` with the bytes of a saved sequence."""
    io = open_state(reuse.ctx, data, WHAT)
    found, wanted = io.text(), str(reuse.ctx.adapter_key(seq_id))
    if found != wanted:
        other = printable(found)
        raise ContextError(
            f"the state was computed with {other}, but sequence {seq_id} uses {wanted}; use "
            "the same adapters and control vector"
        )
    tokens = [int(t) for t in io.array(np.int32)]
    reuse.ctx.memory.state_read(io, seq_id)
    reuse.hold(tokens, seq_id)
    for _ in range(io.count()):
        n, marked = io.count(), bool(io.count())
        at = reuse.tree.reach(tokens[:n], reuse.ctx.adapter_key(seq_id))
        reuse.snapshots.keep(at, io.blob().tobytes(), marked)
    io.end()
    return tokens

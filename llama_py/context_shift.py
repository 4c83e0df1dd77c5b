"""A full context goes on without its middle (llama-completion's context shift)."""

from __future__ import annotations

import logging

from ggml_py.errors import ContextError
from llama_py.context import Context

log = logging.getLogger("llama_py")


def can_shift(ctx: Context) -> bool:
    """Whether positions of the context's sequences can move (llama_memory_can_shift).

    Attention windows and states that cannot lose a part of their past cannot.
    """
    return ctx.memory.goes_back and len({kv.kv_size for kv in ctx.memory.caches.values()}) <= 1


def shift(ctx: Context, seq_id: int, n_keep: int, n_discard: int = 0) -> int:
    """Take n_discard tokens (0: half of them) of those that come after the first n_keep out of a
    full sequence; the rest moves to their place. -> how many tokens were discarded. ContextError if
    nothing can be."""
    held = ctx.memory.seq_pos_max(seq_id) + 1
    n = min(n_discard or (held - n_keep) // 2, held - n_keep - 1)
    if n < 1:
        raise ContextError(
            f"context shift: of {held} tokens {n_keep} are kept, so none can go; keep fewer"
        )
    ctx.reuse.shifted.add(seq_id)  # first of all: an interrupt may come
    ctx.memory.seq_rm(seq_id, n_keep, n_keep + n)
    ctx.memory.seq_add(seq_id, n_keep + n, held, -n)
    log.info("context shift: sequence %d: kept %d tokens, discarded %d", seq_id, n_keep, n)
    return n

"""A full context goes on without its middle (llama-completion's context shift)."""

from __future__ import annotations

import logging

from ggml_py.errors import ContextError
from ggml_py.shield import Shield
from llama_py.context import Context

log = logging.getLogger("llama_py")


def shift(ctx: Context, seq_id: int, n_keep: int, n_discard: int = 0) -> int:
    """Discard tokens of a full sequence, and move later ones to their place.

    Args:
        ctx: Context that holds the sequence.
        seq_id: Sequence to shift.
        n_keep: Tokens at its beginning that stay.
        n_discard: Tokens to discard after these (0: half of them).

    Returns:
        How many tokens were discarded.

    Raises:
        ContextError: No token can be discarded. Nothing is changed.
    """
    ctx.memory.check_shift("context shift", within=True)
    held = ctx.memory.seq_pos_max(seq_id) + 1
    n = min(n_discard or (held - n_keep) // 2, held - n_keep - 1)
    if n < 1:
        raise ContextError(
            f"context shift: of {held} tokens {n_keep} are kept, so none can go; keep fewer"
        )
    with Shield():
        ctx.memory.seq_shift(seq_id, n_keep, n)
        ctx.reuse.shifted.add(seq_id)
    log.info("context shift: sequence %d: kept %d tokens, discarded %d", seq_id, n_keep, n)
    return n

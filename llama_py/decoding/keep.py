"""Context shift: a full context continues without its middle (as in llama-completion)."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ggml_py.errors import ContextError
from ggml_py.machine.shield import Shield
from llama_py.context import Context
from llama_py.decoding.prefix_cache import PrefixCache
from llama_py.params import GenerateParams

log = logging.getLogger("llama_py")

UNTIL_FULL = -2  # value of max_tokens: a full context ends the response


@dataclass(frozen=True, slots=True)
class KeepRule:
    """Tokens of a sequence to keep when its context is full.

    n          tokens at its beginning to keep
    n_discard  tokens to discard after the kept part (0: half of its remainder)
    """

    n: int
    n_discard: int = 0


def keep_rule(
    ctx: Context,
    p: GenerateParams,
    n_prompt: int,
    mixed: bool = False,
    n_spare: int = 0,
    n_discard: int = 0,
) -> KeepRule | None:
    """Return the rule for a response to a prompt; None if it ends when the context is full.

    mixed    the prompt has images
    n_spare  tokens of a full context that are always discarded
    """
    if not p.context_shift or p.max_tokens == UNTIL_FULL:
        return None
    if mixed or not can_shift(ctx):
        why = "with images" if mixed else "with this model's memory"
        log.warning(
            "context shift is not possible %s; it is disabled, so generation stops when the "
            "context is full",
            why,
        )
        return None
    n = n_prompt
    if p.n_keep >= 0:
        n = min(p.n_keep + int(ctx.model.tokenizer.add_bos), n_prompt)
    return KeepRule(max(min(n, ctx.cparams.n_ctx_seq - n_spare), 0), n_discard)


def can_shift(ctx: Context) -> bool:
    """Return True if `shift` is possible (llama_memory_can_shift).

    Recurrent states cannot remove a part of their past. Sliding-window caches can only if
    their size equals the other cache's (`swa_full`).
    """
    return ctx.memory.can_shift


def shift(ctx: Context, seq_id: int, n_keep: int, n_discard: int = 0) -> int:
    """Discard tokens of a full sequence, and move later tokens down.

    Args:
        ctx: Context that holds the sequence.
        seq_id: Sequence to shift.
        n_keep: Tokens to keep at its beginning.
        n_discard: Tokens to discard after these (0: half of the rest).

    Returns:
        Number of discarded tokens.

    Raises:
        ContextError: No token can be discarded; the sequence is unchanged.
    """
    ctx.memory.check_shift("context shift", within=True)
    held = ctx.memory.seq_pos_max(seq_id) + 1
    n = min(n_discard or (held - n_keep) // 2, held - n_keep - 1)
    if n < 1:
        raise ContextError(
            f"context shift cannot discard tokens: n_keep = {n_keep} of {held} tokens; use a "
            "smaller n_keep"
        )
    with Shield():
        ctx.memory.seq_shift(seq_id, n_keep, n)
        PrefixCache.for_context(ctx).shifted.add(seq_id)
    log.info("context shift: sequence %d: kept %d tokens, discarded %d", seq_id, n_keep, n)
    return n

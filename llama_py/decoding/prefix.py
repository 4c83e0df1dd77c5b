"""Prefix of a context's sequence that is not computed again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ggml_py._moved import Former
from llama_py.batch.prompts import MixedPrompt
from llama_py.context import Context
from llama_py.decoding.prefix_cache import PrefixCache, PrefixMatch


class Prefix:
    """Known tokens of a sequence; a simple interface of `PrefixCache`.

    n_reused    cached tokens of all prompts
    last_match  match of the last prompt and its reason; None before the first
    """

    def __init__(self, ctx: Context, seq_id: int = 0) -> None:
        self.ctx, self.seq_id = ctx, seq_id
        self.cache = PrefixCache.for_context(ctx)
        self.tokens: list[int] = []
        self.n_reused = 0
        self.last_match: PrefixMatch | None = None

    def start(self, ids: Sequence[int], marks: Iterable[int] | None = None) -> list[int]:
        """Return the end of a prompt that the sequence lacks, after removing tokens that differ.

        The rest has at least one token, which has logits. `stream` computes them, or
        `cache.decode`; see there and `PrefixCache.start` for marks.
        """
        self.last_match = match = self.cache.start(ids, self.seq_id, marks)
        rest = list(ids[match.n_reused :])
        if isinstance(ids, MixedPrompt):
            rest = ids.rest(match.n_reused) or ids
            if rest is ids and match.n_reused:  # the rest would begin within an image
                self.last_match = match = self.cache.start(ids, self.seq_id, marks, afresh=True)
        self.tokens = list(ids[: match.n_reused])
        self.n_reused += match.n_reused
        return rest

    def add(self, ids: Sequence[int]) -> None:
        """Add tokens that were decoded or generated; the last may not be in memory yet.

        After a context shift, the tokens before the gap remain.
        """
        if self.seq_id in self.cache.shifted:
            self.tokens = self.cache.tokens(self.seq_id)
            return
        held = self.ctx.memory.seq_pos_max(self.seq_id) + 1
        self.tokens = [*self.tokens, *ids][:held]
        self.cache.hold(self.tokens, self.seq_id)

    def clear(self) -> None:
        """Clear the sequence. Its state is saved in host memory if `cache_ram` allows."""
        self.tokens = []
        self.cache.offload(self.seq_id)

    told = Former("last_match")

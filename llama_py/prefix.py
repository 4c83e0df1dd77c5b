"""What a sequence of a context holds, so that it is not computed again."""

from __future__ import annotations

from collections.abc import Sequence

from llama_py.context import Context


class Prefix:
    """The tokens of a sequence, as far as they are known.

    n_reused  tokens that did not have to be computed, of all prompts so far
    """

    def __init__(self, ctx: Context, seq_id: int = 0) -> None:
        self.ctx, self.seq_id = ctx, seq_id
        self.tokens: list[int] = []
        self.n_reused = 0

    def start(self, ids: Sequence[int]) -> list[int]:
        """The end of a prompt that the sequence does not have; it loses what differs.

        At least one token is left, so that there are logits.
        """
        memory = self.ctx.memory
        if self.ctx.model.has_encoder:  # each text is read as a whole
            self.clear()
            return list(ids)
        held = memory.seq_pos_max(self.seq_id) + 1
        same, most = 0, min(len(self.tokens), held, len(ids) - 1)
        while same < most and self.tokens[same] == ids[same]:
            same += 1
        if same < held and not memory.seq_rm(self.seq_id, same, -1):
            memory.seq_rm(self.seq_id)  # a recurrent state cannot be taken back
            same = 0
        self.tokens = self.tokens[:same]
        self.n_reused += same
        return list(ids[same:])

    def add(self, ids: Sequence[int]) -> None:
        """Tokens that were decoded or generated since; the last may not be in the memory yet."""
        held = self.ctx.memory.seq_pos_max(self.seq_id) + 1
        self.tokens = [*self.tokens, *ids][:held]

    def clear(self) -> None:
        """Forget the sequence."""
        self.tokens = []
        self.ctx.memory.seq_rm(self.seq_id)

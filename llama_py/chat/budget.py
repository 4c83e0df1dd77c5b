"""Limit on the length of reasoning (llama-server's --reasoning-budget)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from llama_py.chat.thinking import Tags, begins_inside

if TYPE_CHECKING:
    from llama_py.params.choosers import Logits
    from llama_py.tokenizer import Tokenizer


class ThoughtBudget:
    """A logits processor that ends reasoning: after n tokens, it forces the end tag.

    reasoning-budget.cpp: message, if any, precedes that tag. The limit does not apply to a tool
    call, which begins when `starts_call` returns True for a piece.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        tags: Tags,
        n: int,
        prompt: str = "",
        message: str = "",
        starts_call: Callable[[bytes], bool] | None = None,
    ) -> None:
        def ids(text: str) -> list[int]:
            return tokenizer.tokenize(text, add_special=False)

        self.start, self.ends = ids(tags.start), [ids(end) for end in tags.ends]
        self.forced = ids(message + tags.ends[0])
        self.left: int | None = n if begins_inside(tags, prompt) else None  # None: no reasoning
        self.n, self.seen = n, -1  # processed tokens
        self._pieces, self._starts_call = tokenizer.pieces, starts_call

    def __call__(self, ids: Sequence[int], logits: Logits) -> Logits:
        if self.seen < 0:  # the prompt: begins_inside has checked its end
            self.seen = len(ids)
        for at in range(self.seen, len(ids)):
            self._look(ids[: at + 1])
        self.seen = len(ids)
        if self.left is None or self.left > 0 or not self.forced:
            return logits
        only = logits.copy()
        only[:] = float("-inf")
        only[self.forced.pop(0)] = 0.0
        return only

    def _look(self, ids: Sequence[int]) -> None:
        """Update the budget by the last token of ids."""
        is_call = self._starts_call is not None and self._starts_call(self._pieces[ids[-1]])
        has_ended = self.left is not None and any(_ends(ids, end) for end in self.ends)
        if is_call or has_ended:
            self.left, self.forced = None, []
        elif self.left is not None:
            self.left -= 1
        elif self.forced and _ends(ids, self.start):
            self.left = self.n


def _ends(ids: Sequence[int], tag: Sequence[int]) -> bool:
    return len(tag) > 0 and list(ids[-len(tag) :]) == list(tag)

"""Scores of the last prompts, for prompts that begin with the same tokens."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from math import isfinite

from llama_py.decoding.prefix_cache.tree import common
from llama_py.decoding.scores import Score

MAX_TEXTS = 256
MAX_VALUES = 1 << 18  # log probabilities of all texts, about 30 MiB


@dataclass(eq=False, slots=True)
class ScoredText:
    """A prompt, and the scores of its second token and those after it, up to now.

    kind   key of the computation: other adapters give other scores
    n_top  number of most likely tokens of each score
    """

    kind: Hashable
    ids: Sequence[int]
    n_top: int
    scores: list[Score] = field(default_factory=list)


class KnownScores:
    """Scores of prompts within limits; the least recently used are dropped first.

    size  number of log probabilities
    """

    def __init__(self, most: int = MAX_VALUES) -> None:
        """Create an empty store; most: maximum size."""
        self._most, self.size = most, 0
        self._sizes: dict[ScoredText, int] = {}

    def __len__(self) -> int:
        return len(self._sizes)

    def find(self, text: ScoredText) -> list[Score]:
        """Return the scores of a text's first tokens, the most that any text has.

        The other text is dropped if it has no further scores, since the caller adds them to this
        text.
        """
        best, n_best = None, len(text.scores)
        for one in reversed(self._sizes):
            at = slice(n_best + 1, n_best + 2)  # a token that a longer common beginning has
            if one.ids[at] != text.ids[at]:
                continue
            if one.kind == text.kind and one.n_top >= text.n_top:
                n = min(common(one.ids, text.ids) - 1, len(one.scores))
                if n > n_best:
                    best, n_best = one, n
        if best is None:
            return text.scores
        self._sizes[best] = self._sizes.pop(best)
        if best.n_top == text.n_top:
            if n_best == len(best.scores):
                self.drop(best)
            return best.scores[:n_best]
        return [Score(id, p, top[: text.n_top]) for id, p, top in best.scores[:n_best]]

    def add(self, text: ScoredText, scores: Sequence[Score]) -> bool:
        """Add scores to a text and keep it; return False and drop it if one is not finite."""
        if not all(one.logprob is not None and isfinite(one.logprob) for one in scores):
            self.drop(text)
            return False
        text.scores += scores
        size = len(text.scores) * (1 + text.n_top)
        self.size += size - self._sizes.pop(text, 0)
        self._sizes[text] = size
        while self.size > self._most or len(self._sizes) > MAX_TEXTS:
            self.drop(next(iter(self._sizes)))
        return True

    def drop(self, text: ScoredText) -> None:
        """Forget the scores of a text."""
        self.size -= self._sizes.pop(text, 0)

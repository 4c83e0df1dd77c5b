"""A constraint that holds for what is said, not for the thoughts before."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np

from llama_py.params.choosers import Thinking
from llama_py.sampler.candidates import Candidates
from llama_py.sampler.constraint import Constraint
from llama_py.tokenizer import Tokenizer

SPACES = 8  # bytes of them between thoughts and answer, at most


class AfterThoughts:
    """`inner` from where the thoughts end. Thoughts may be anything, but do not end the answer; a
    token that has text behind their end is not allowed.

    An answer that does not begin inside thoughts has them if it begins with their tag.
    """

    def __init__(self, inner: Constraint, tokenizer: Tokenizer, thinking: Thinking) -> None:
        self.inner, self.pieces, self.eog = inner, tokenizer.pieces, tokenizer.eog
        self.start = thinking.start.strip().encode()
        self.ends = tuple(end.strip().encode() for end in thinking.ends)
        self.mark = thinking.answer.encode()
        if self.mark:  # thoughts and what is between them and the answer end with it
            self.ends = (self.mark,)
        self.begins_inside = thinking.inside or bool(self.mark)
        self.spaces = thinking.spaces
        self.reset()

    def reset(self) -> None:
        self.inner.reset()
        self.thinking, self.may_think = self.begins_inside, True
        self.text = b""  # so far, of thoughts or of the tag before them
        self.gap = 0  # bytes of spaces that may follow
        self.said = False  # whether `inner` has begun

    def copy(self) -> AfterThoughts:
        other = copy.copy(self)
        other.inner = self.inner.copy()
        return other

    @property
    def complete(self) -> bool:
        return not self.text and not self.thinking and self.inner.complete

    def allows(self, id: int) -> bool:
        if self.said:
            return self.inner.allows(id)
        if not 0 <= id < len(self.pieces):
            return False
        if self.thinking:
            return id not in self.eog and not self._overshoots(id)
        return self._comes_before(id) or (not self.text and self.inner.allows(id))

    def n_allowed(self, ids: Sequence[int]) -> int:
        if self.said:
            return self.inner.n_allowed(ids)
        trial = self.copy()
        for n, id in enumerate(ids):
            if not trial.allows(id):
                return n
            trial.accept(id)
        return len(ids)

    def apply(self, c: Candidates) -> Candidates:
        if self.said:
            return self.inner.apply(c)
        if self.thinking:
            ids = [id for id in range(len(self.pieces)) if not self.allows(id)]
            left = c.logits.copy()
            left[ids] = -np.inf
            left[len(self.pieces) :] = -np.inf
            return Candidates(c.ids, left)
        more = [id for id in range(len(self.pieces)) if self._comes_before(id)]
        left = np.full_like(c.logits, -np.inf) if self.text else self.inner.apply(c).logits
        left[more] = c.logits[more]
        return Candidates(c.ids, left)

    def accept(self, id: int) -> None:
        if self.said:
            self.inner.accept(id)
        elif self.thinking:
            self._think(self.pieces[id])
        elif not self.text and self.inner.allows(id):
            self.said = True
            self.inner.accept(id)
        elif self._is_gap(id):
            self.gap -= len(self.pieces[id])
        else:
            self.text = (self.text + self.pieces[id]).lstrip()
            if self.text.startswith(self.start):
                self.thinking, self.text = True, b""

    def _think(self, piece: bytes) -> None:
        self.text = (self.text + piece)[-4 * max(map(len, (*self.ends, piece))) :]
        if any(end in self.text for end in self.ends):
            self.thinking, self.may_think, self.text = False, False, b""
            self.gap = SPACES if self.spaces else 0

    def _overshoots(self, id: int) -> bool:
        text = self.text + self.pieces[id]
        for end in self.ends:
            at = text.find(end)
            if at >= 0:
                return bool(text[at + len(end) :].strip())
        return False

    def _comes_before(self, id: int) -> bool:
        """Whether a token is of the tag before thoughts, or of the spaces after them."""
        piece = self.pieces[id]
        if not piece or id in self.eog:
            return False
        if self._is_gap(id):
            return True
        text = (self.text + piece).lstrip()
        if not self.may_think or not text:
            return False
        whole = text.startswith(self.start) and not text[len(self.start) :].strip()
        return whole or self.start.startswith(text)

    def _is_gap(self, id: int) -> bool:
        piece = self.pieces[id]
        return 0 < len(piece) <= self.gap and not piece.strip()

"""Drafting from hidden states: each token from its predecessor and the hidden state before that."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import ClassVar

import numpy as np

from llama_py.batch import F32, Batch
from llama_py.context import Context
from llama_py.decoding.drafting.draft_vocabulary import DraftVocabulary
from llama_py.decoding.drafting.drafter import ComputedTokens, Drafter, DrafterSetting, DraftRequest
from llama_py.decoding.drafting.drafters._model import likeliest, long_enough, take_out
from llama_py.decoding.known_text import KnownText
from llama_py.params.speculative import SpeculativeParams


@dataclass(slots=True)
class KnownTokens:
    """Tokens and states of a sequence that the draft context may not have processed yet.

    n_held   the draft context is valid before this position of the text
    text     tokens from n_held - 1 on, or from the first known one
    h        F32 [n, n_embd] their states
    """

    n_held: int
    text: KnownText
    h: F32


@dataclass(slots=True)
class Drafting:
    """Unfinished draft: tokens with their input states.

    tokens, h   accepted tokens: those missing in the draft contexts, and the newest; their states
    first    position of tokens[0]
    guess, guess_h   draft tokens and their input states
    """

    request: DraftRequest
    tokens: list[int]
    h: F32
    first: int
    guess: list[int] = field(default_factory=list)
    guess_h: list[F32] = field(default_factory=list)
    open: bool = True

    def take(self, logits: F32, h: F32, few: DraftVocabulary | None, p_min: float) -> None:
        """Add the most likely token of a head's logits to the draft, or end the draft."""
        id = likeliest(logits, few, p_min)
        if id is None:
            self.open = False
            return
        self.guess.append(id)
        self.guess_h.append(h)
        self.open = len(self.guess) < self.request.n_max


class StatesDrafter(Drafter):
    """Draft contexts that process every token of the target model with the state before it. The
    input state of a draft token is an output of the draft context.

    heads   draft contexts; few  reduced vocabulary of each
    n_embd  dimensions of the states
    lag     offset from text positions to positions in the draft contexts. 1: a token has the
            position of the preceding one, so the first token, which has no state, is skipped
    """

    uses_draft_model = True
    lag: ClassVar[int] = 0

    def __init__(self, setting: DrafterSetting) -> None:
        super().__init__(setting)
        self.heads: list[Context] = []
        self.few: list[DraftVocabulary | None] = []
        self.n_embd = 0
        self._known: dict[int, KnownTokens] = {}

    @classmethod
    def n_max(cls, p: SpeculativeParams) -> int:
        return p.spec_draft_n_max

    @abstractmethod
    def encode_states(self, seen: Sequence[ComputedTokens]) -> list[F32]:
        """Return the states of each part's tokens, F32 [n_tokens, n_embd]."""

    def observe(self, seen: Sequence[ComputedTokens]) -> None:
        for part, h in zip(seen, self.encode_states(seen), strict=True):
            for few in filter(None, self.few):
                few.add(part.tokens)
            known = self._continue_known(part.seq_id, part.pos)
            old = known.text.tokens_since(part.pos)
            same = sum(1 for _ in takewhile(_are_same, zip(old, part.tokens, strict=False)))
            known.n_held = min(known.n_held, part.pos + same)
            known.text.cut(part.pos)
            known.h = np.concatenate((known.h[: known.text.n], h))
            known.text.add(part.tokens)
            if known.text.n > self.setting.ctx.cparams.n_batch:
                self._catch_up(part.seq_id, known)

    def shift(self, seq_id: int, pos: int, n: int, end: int) -> None:
        known = self._known.pop(seq_id, None)
        if known is not None and known.text.first < end <= known.text.end:
            known.text.cut(end)
            if known.n_held < end:
                self._catch_up(seq_id, known)
            self._forget(known, end)
            if pos + n < end and all(ctx.memory.can_shift for ctx in self.heads):
                for ctx in self.heads:
                    take_out(ctx, seq_id, max(pos - self.lag, 0), n, end - self.lag)
                known.n_held -= n
                known.text.first -= n
                self._known[seq_id] = known
                return
        for ctx in self.heads:
            ctx.memory.seq_rm(seq_id)

    def _continue_known(self, seq_id: int, pos: int) -> KnownTokens:
        """Return a sequence's known tokens if `pos` continues them. Otherwise start them there; the
        draft context preserves earlier positions."""
        known = self._known.get(seq_id)
        if known is not None and known.text.first <= pos <= known.text.end:
            return known
        if known is None or pos > known.text.end or self.lag:
            for ctx in self.heads:
                ctx.memory.seq_rm(seq_id)
        start = KnownTokens(pos, KnownText(pos), np.empty((0, self.n_embd), np.float32))
        self._known[seq_id] = start
        return start

    def _catch_up(self, seq_id: int, known: KnownTokens) -> None:
        """Process the known tokens, since their states need much memory."""
        tokens, h, first = self._unread(known, known.text.end)
        if tokens:
            pos = self._positions(first, tokens)
            self._hold(seq_id, pos.start)
            for ctx in self.heads:
                ctx.decode(Batch(tokens, h, pos, [(seq_id,)] * len(tokens)), "none")
        self._forget(known, known.text.end)

    def _positions(self, first: int, tokens: Sequence[int]) -> range:
        """Return the positions of a text's tokens in the draft contexts."""
        return range(first - self.lag, first - self.lag + len(tokens))

    def _unread(self, known: KnownTokens, end: int) -> tuple[list[int], F32, int]:
        """Return tokens before `end` that the draft context lacks, their input states, and the
        position of the first; without a known state, the first token is omitted."""
        first, start = known.text.first, known.n_held
        tokens = known.text.tokens_since(start)[: end - start]
        h = known.h[max(start - 1 - first, 0) : end - 1 - first]
        if len(h) < len(tokens) and self.lag:
            return tokens[1:], h, start + 1
        if len(h) < len(tokens):
            h = np.concatenate((np.zeros((1, self.n_embd), np.float32), h))
        return tokens, h, start

    def _forget(self, known: KnownTokens, end: int) -> None:
        """Drop tokens and states before `end`, which the draft context now has."""
        text, old = KnownText(end - 1), known.text
        known.n_held = end
        known.h = known.h[end - 1 - old.first :]
        text.add(old.tokens_since(end - 1))
        known.text = text

    @property
    def contexts(self) -> Sequence[Context]:
        return self.heads

    def draft(self, requests: Sequence[DraftRequest]) -> Mapping[int, list[int]]:
        begun = [self._begin(r) for r in requests if r.seq_id in self._known]
        drafting = [d for d in begun if d.tokens]
        if not drafting:
            return {}
        self.guess(drafting)
        for d in drafting:
            self._forget(self._known[d.request.seq_id], d.request.pos + 1)
        guesses = {d.request.seq_id: d.guess for d in drafting}
        return long_enough(guesses, self.setting.params)

    def _begin(self, r: DraftRequest) -> Drafting:
        """Start a draft with the missing tokens and the newest one."""
        known = self._continue_known(r.seq_id, r.pos)
        known.n_held = min(known.n_held, r.pos)  # a prompt of one token is not yet computed
        known.text.cut(r.pos)
        known.text.add([int(r.ids[-1])])
        found = Drafting(r, *self._unread(known, r.pos + 1))
        self._hold(r.seq_id, self._positions(found.first, ()).start)
        return found

    def _hold(self, seq_id: int, end: int) -> None:
        """Remove positions from `end` on in draft contexts, or all if earlier cells are missing."""
        for ctx in self.heads:
            ctx.memory.seq_rm(seq_id, end, -1)
            if ctx.memory.seq_pos_max(seq_id) + 1 != end:
                ctx.memory.seq_rm(seq_id)

    def guess(self, drafting: list[Drafting]) -> None:
        """Draft with one LM head; memory then has its input and its draft tokens."""
        head = self.heads[0]
        rows = self.decode(head, [(d, d.tokens, d.h) for d in drafting])
        while drafting:
            for d, row in zip(drafting, rows, strict=True):
                d.take(*row, self.few[0], self.setting.params.spec_draft_p_min)
            drafting = [d for d in drafting if d.open]
            if drafting:
                rows = self.decode(
                    head, [(d, d.guess[-1:], d.guess_h[-1][None]) for d in drafting], last=True
                )

    def decode(
        self, ctx: Context, parts: list[tuple[Drafting, list[int], F32]], last: bool = False
    ) -> list[tuple[F32, F32]]:
        """Return logits and state of each part's last token; `last`: the draft's last token."""
        pos: list[int] = []
        for d, ids, _ in parts:
            first = d.request.pos + len(d.guess) if last else d.first
            pos += self._positions(first, ids)
        logits = ctx.decode(
            Batch(
                [id for _, ids, _ in parts for id in ids],
                np.concatenate([h for _, _, h in parts]),
                pos,
                seq_ids=[(d.request.seq_id,) for d, ids, _ in parts for _ in ids],
                outputs=[i == len(ids) - 1 for _, ids, _ in parts for i in range(len(ids))],
            )
        )
        assert ctx.h_nextn is not None
        return [*zip(logits, ctx.h_nextn, strict=True)]

    def close(self) -> None:
        self.setting.ctx.set_embeddings_nextn(False)
        for ctx in self.heads:
            ctx.close()


def _are_same(pair: tuple[int, int]) -> bool:
    return pair[0] == pair[1]

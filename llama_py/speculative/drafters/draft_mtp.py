"""By NextN (MTP) layers: each token from the one before it and the hidden state before that
(common_speculative_impl_draft_mtp)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np

from ggml_py.errors import ContextError
from llama_py.batch import F32, Batch
from llama_py.context import Context
from llama_py.context_shift import can_shift
from llama_py.loaded import Loaded
from llama_py.params.speculative import SpeculativeParams
from llama_py.speculative.draft_vocabulary import DraftVocabulary, draft_vocabulary
from llama_py.speculative.drafter import Drafter, Request, Seen, Setting, drafter
from llama_py.speculative.drafters._model import like, likeliest, long_enough
from llama_py.speculative.text import Text
from llama_py.speculative.vocabulary import check_same_vocabulary


@dataclass(slots=True)
class _Known:
    """Of a sequence, what the model has computed and the draft context may lack.

    n_held   the draft context is right before this position
    text     tokens from n_held - 1 on, or from the first that was seen
    h        F32 [n, n_embd] the states of these
    """

    n_held: int
    text: Text
    h: F32


@dataclass(slots=True)
class _Drafting:
    """A draft in the making: tokens with the states before them, and the guesses.

    tokens, h   those that are true: not yet in the draft contexts, and the last chosen one
    guess, guess_h   tokens drafted, and the state before each of them
    """

    request: Request
    tokens: list[int]
    h: F32
    guess: list[int] = field(default_factory=list)
    guess_h: list[F32] = field(default_factory=list)
    open: bool = True

    def take(self, logits: F32, h: F32, few: DraftVocabulary | None, p_min: float) -> None:
        """What a head made of the last token."""
        id = likeliest(logits, few, p_min)
        if id is None:
            self.open = False
            return
        self.guess.append(id)
        self.guess_h.append(h)
        self.open = len(self.guess) < self.request.n_max


class DraftMtp(Drafter):
    """The NextN layers (heads) of the model, or of another file, each in a context of its own.

    They read every token that the model has read, each with the model's state before it. Of a
    guess, the state before is what the layer itself made. With several heads the n-th guess is
    the n-th one's, which reads the guesses before it anew.
    """

    uses_draft_model = True
    loads_nextn = True

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        target, given = setting.ctx, setting.model_draft
        model = target.model
        if given is not None and (given.architecture.can_draft or not _is_shared(setting.params)):
            model = given
        _check(target.model, model)
        n_heads = min(model.hparams.n_layer_nextn, setting.params.spec_draft_n_max)
        self.heads = [
            like(target, model, setting.params, mtp=True, nextn_layer=i) for i in range(n_heads)
        ]
        n_tokens = setting.params.spec_draft_vocab
        self.few = [draft_vocabulary(ctx, n_tokens) for ctx in self.heads]
        for ctx in (target, *self.heads):
            ctx.set_embeddings_nextn(True, masked=ctx is not target)
        self.n_embd = model.hparams.n_embd
        self._known: dict[int, _Known] = {}

    @classmethod
    def n_max(cls, p: SpeculativeParams) -> int:
        return p.spec_draft_n_max

    def observe(self, seen: Sequence[Seen]) -> None:
        for part in seen:
            assert part.h is not None
            for few in filter(None, self.few):
                few.add(part.tokens)
            known = self._going_on(part.seq_id, part.pos)
            old = known.text.since(part.pos)
            same = sum(1 for _ in takewhile(_are_same, zip(old, part.tokens, strict=False)))
            known.n_held = min(known.n_held, part.pos + same)
            known.text.cut(part.pos)
            known.h = np.concatenate((known.h[: known.text.n], part.h))
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
            if pos + n < end and all(can_shift(ctx) for ctx in self.heads):
                for ctx in self.heads:
                    ctx.memory.seq_rm(seq_id, end, -1)
                    ctx.memory.seq_rm(seq_id, pos, pos + n)
                    ctx.memory.seq_add(seq_id, pos + n, end, -n)
                known.n_held -= n
                known.text.first -= n
                self._known[seq_id] = known
                return
        for ctx in self.heads:
            ctx.memory.seq_rm(seq_id)

    def _going_on(self, seq_id: int, pos: int) -> _Known:
        """What is known of a sequence, if tokens at this position follow it; else the start of it,
        where the draft context keeps what it has before that position."""
        known = self._known.get(seq_id)
        if known is not None and known.text.first <= pos <= known.text.end:
            return known
        if known is None or pos > known.text.end:
            for ctx in self.heads:
                ctx.memory.seq_rm(seq_id)
        start = _Known(pos, Text(pos), np.empty((0, self.n_embd), np.float32))
        self._known[seq_id] = start
        return start

    def _catch_up(self, seq_id: int, known: _Known) -> None:
        """Read what was seen already: states take much memory."""
        tokens, h = self._unread(known, known.text.end)
        for ctx in self.heads:
            ctx.memory.seq_rm(seq_id, known.n_held, -1)
            ctx.decode(Batch(tokens, h, seq_ids=[(seq_id,)] * len(tokens)), "none")
        self._forget(known, known.text.end)

    def _unread(self, known: _Known, end: int) -> tuple[list[int], F32]:
        """Tokens before position `end` that the draft context lacks, with the states before them;
        nothing is known of what is before the first."""
        first = known.text.first
        tokens = known.text.since(known.n_held)[: end - known.n_held]
        h = known.h[max(known.n_held - 1 - first, 0) : end - 1 - first]
        if len(h) < len(tokens):
            h = np.concatenate((np.zeros((1, self.n_embd), np.float32), h))
        return tokens, h

    def _forget(self, known: _Known, end: int) -> None:
        """All before position `end` is in the draft context now."""
        text, old = Text(end - 1), known.text
        known.n_held = end
        known.h = known.h[end - 1 - old.first :]
        text.add(old.since(end - 1))
        known.text = text

    @property
    def contexts(self) -> Sequence[Context]:
        return self.heads

    def draft(self, requests: Sequence[Request]) -> Mapping[int, list[int]]:
        drafting = [self._begin(r) for r in requests if r.seq_id in self._known]
        if not drafting:
            return {}
        if len(self.heads) > 1:
            self._chain(drafting)
        else:
            self._grow(drafting)
        for d in drafting:
            self._forget(self._known[d.request.seq_id], d.request.pos + 1)
        guesses = {d.request.seq_id: d.guess for d in drafting}
        return long_enough(guesses, self.setting.params)

    def _begin(self, r: Request) -> _Drafting:
        """All that is true: what the draft context lacks, and the token that was just chosen."""
        known = self._going_on(r.seq_id, r.pos)
        known.n_held = min(known.n_held, r.pos)  # a prompt of one token has not been seen
        for ctx in self.heads:
            ctx.memory.seq_rm(r.seq_id, known.n_held, -1)
        known.text.cut(r.pos)
        known.text.add([int(r.ids[-1])])
        tokens, h = self._unread(known, r.pos + 1)
        return _Drafting(r, tokens, h)

    def _grow(self, drafting: list[_Drafting]) -> None:
        """One head: what it has read stays, and its guesses follow."""
        head = self.heads[0]
        rows = _decode(head, [(d, d.tokens, d.h) for d in drafting])
        while drafting:
            for d, row in zip(drafting, rows, strict=True):
                d.take(*row, self.few[0], self.setting.params.spec_draft_p_min)
            drafting = [d for d in drafting if d.open]
            if drafting:
                rows = _decode(head, [(d, d.guess[-1:], d.guess_h[-1][None]) for d in drafting])

    def _chain(self, drafting: list[_Drafting]) -> None:
        """A head for each guess; each reads what is true, and the guesses of those before it."""
        for head, few in zip(self.heads, self.few, strict=True):
            parts = []
            for d in drafting:
                more = np.array(d.guess_h, np.float32).reshape(-1, self.n_embd)
                parts.append((d, [*d.tokens, *d.guess], np.concatenate((d.h, more))))
            rows = _decode(head, parts)
            for d, row in zip(drafting, rows, strict=True):
                if d.open:
                    d.take(*row, few, self.setting.params.spec_draft_p_min)

    def close(self) -> None:
        self.setting.ctx.set_embeddings_nextn(False)
        for ctx in self.heads:
            ctx.close()


def _decode(ctx: Context, parts: list[tuple[_Drafting, list[int], F32]]) -> list[tuple[F32, F32]]:
    """Logits and state of the last token of each part."""
    logits = ctx.decode(
        Batch(
            [id for _, ids, _ in parts for id in ids],
            np.concatenate([h for _, _, h in parts]),
            seq_ids=[(d.request.seq_id,) for d, ids, _ in parts for _ in ids],
            outputs=[i == len(ids) - 1 for _, ids, _ in parts for i in range(len(ids))],
        )
    )
    assert ctx.h_nextn is not None
    return [*zip(logits, ctx.h_nextn, strict=True)]


def _is_shared(p: SpeculativeParams) -> bool:
    """Whether `model_draft` may be for another way to draft."""
    return sum(drafter(name).uses_draft_model for name in p.drafters) > 1


def _are_same(pair: tuple[int, int]) -> bool:
    return pair[0] == pair[1]


def _check(target: Loaded, model: Loaded) -> None:
    """ContextError if the layers are missing or not for this model."""
    if not model.architecture.can_draft:
        n, arch = model.hparams.n_layer_nextn, model.arch
        why = "it was loaded without them, use load_mtp=True" if n else "it has none"
        raise ContextError(
            f"draft-mtp needs the NextN layers of {model.file.path} ({arch}): {why}; or give a"
            " model_draft that has some"
        )
    if model is target:
        return
    check_same_vocabulary(target, model)
    if "decoder_mtp" not in target.architecture.gtypes:
        raise ContextError(f"draft-mtp: models of {target.arch!r} do not give their hidden states")
    sizes = model.hparams.n_embd, target.hparams.n_embd
    if sizes[0] != sizes[1]:
        raise ContextError(
            f"draft-mtp: the NextN layers of {model.file.path} take states of {sizes[0]} channels,"
            f" but the model's have {sizes[1]}"
        )

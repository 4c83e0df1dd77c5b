"""Drafts of a smaller model with the same vocabulary (common_speculative_impl_draft_simple)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ggml_py.errors import ContextError
from llama_py.batch import F32, Batch
from llama_py.context import Context
from llama_py.decoding.drafting.draft_vocabulary import draft_vocabulary
from llama_py.decoding.drafting.drafter import Drafter, DrafterSetting, DraftRequest
from llama_py.decoding.drafting.drafters._model import create_draft_context, likeliest, long_enough
from llama_py.decoding.drafting.vocabulary import check_same_vocabulary
from llama_py.decoding.known_text import KnownText
from llama_py.decoding.rollback import Rollback
from llama_py.params.speculative import SpeculativeParams


class DraftSimple(Drafter):
    """Draft model with a separate context, which continues the text greedily.

    Recurrent models are possible: rejected tokens are rolled back like the target's.
    """

    uses_draft_model = True

    def __init__(self, setting: DrafterSetting) -> None:
        super().__init__(setting)
        model, target = setting.model_draft, setting.ctx
        if model is None:
            raise ContextError("draft-simple needs a smaller model; pass it as model_draft (-md)")
        check_same_vocabulary(target.model, model)
        self.ctx = create_draft_context(target, model, setting.params)
        self.few = draft_vocabulary(self.ctx, setting.params.spec_draft_vocab)
        self.rollback = Rollback(self.ctx)
        self._held: dict[int, KnownText] = {}  # tokens in the draft context's memory

    @classmethod
    def n_max(cls, p: SpeculativeParams) -> int:
        return p.spec_draft_n_max

    @property
    def contexts(self) -> Sequence[Context]:
        return [self.ctx]

    def draft(self, requests: Sequence[DraftRequest]) -> Mapping[int, list[int]]:
        n_vocab = self.ctx.n_vocab
        known = [r for r in requests if int(r.ids.max()) < n_vocab]
        guesses: dict[int, list[int]] = {r.seq_id: [] for r in known}
        rows = self._decode({r.seq_id: self._unread(r) for r in known}) if known else {}
        for r in known:
            self.rollback.mark(r.seq_id, r.n_max)
        while rows:
            following: dict[int, list[int]] = {}
            for r in known:
                if r.seq_id not in rows:
                    continue
                id = likeliest(rows[r.seq_id], self.few, self.setting.params.spec_draft_p_min)
                if id is None or id >= self.setting.ctx.n_vocab:
                    continue
                guesses[r.seq_id].append(id)
                if len(guesses[r.seq_id]) < r.n_max:
                    following[r.seq_id] = [id]
            rows = self._decode(following) if following else {}
        return long_enough(guesses, self.setting.params)

    def _unread(self, r: DraftRequest) -> list[int]:
        """Return the text's tokens that the draft context lacks; roll back differing tokens.

        Positions count from the first token that the draft knows.
        """
        held = self._held.setdefault(r.seq_id, KnownText())
        n = min(held.n, r.ids.size - 1)
        other = np.flatnonzero(held.ids[:n] != r.ids[:n])
        same = int(other[0]) if other.size else n
        at = self.rollback.truncate(r.seq_id, same)
        held.cut(at)
        return [int(id) for id in r.ids[at:]]

    def _decode(self, parts: Mapping[int, list[int]]) -> dict[int, F32]:
        """Return the logits after the tokens of each sequence."""
        rows = self.ctx.decode(
            Batch(
                [id for ids in parts.values() for id in ids],
                seq_ids=[(seq_id,) for seq_id, ids in parts.items() for _ in ids],
                outputs=[i == len(ids) - 1 for ids in parts.values() for i in range(len(ids))],
            )
        )
        for seq_id, ids in parts.items():
            self._held[seq_id].add(ids)
            if self.few is not None:
                self.few.add(ids)
        return dict(zip(parts, rows, strict=True))

    def close(self) -> None:
        self.ctx.close()

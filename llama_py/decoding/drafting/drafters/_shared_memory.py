"""Drafting by layers that attend to the model's memory, so earlier tokens need no processing
(common/speculative.cpp, is_mem_shared)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ggml_py.errors import ContextError, ModelError
from llama_py.batch import F32, Batch
from llama_py.context import Context
from llama_py.decoding.drafting.draft_vocabulary import draft_vocabulary
from llama_py.decoding.drafting.drafter import ComputedTokens, Drafter, DrafterSetting, DraftRequest
from llama_py.decoding.drafting.drafters._model import (
    create_draft_context,
    likeliest,
    load_draft_model,
    long_enough,
)
from llama_py.params.speculative import SpeculativeParams


class SharedMemoryDrafter(Drafter):
    """Drafter that computes each draft token from the token and state before it. All are at the
    position after the model's computed tokens."""

    uses_draft_model = True

    def __init__(self, setting: DrafterSetting, name: str) -> None:
        super().__init__(setting)
        target, model = setting.ctx, load_draft_model(setting, name)
        width, given = model.hparams.n_embd_hidden, target.model.hparams.n_embd
        if width != given:
            raise ModelError(
                f"{model.file.path} is a draft model for embedding length {width}, but "
                f"{target.model.file.path} has {given}; use the draft model that was trained "
                "with it"
            )
        if not target.gives_nextn:
            raise ContextError(
                f"{name}: models of architecture {target.model.arch!r} do not expose their "
                "hidden states"
            )
        if target.model.architecture.parts:
            raise ContextError(
                f"{name}: {model.file.path} reads the model's KV cache, which is split over "
                "devices; use another split_mode"
            )
        self.ctx = create_draft_context(target, model, setting.params, target=target)
        self.few = draft_vocabulary(self.ctx, setting.params.spec_draft_vocab)
        target.set_embeddings_nextn(True)
        self.ctx.set_embeddings_nextn(True, masked=True)
        self._states: dict[int, tuple[int, F32]] = {}  # by sequence: position of the first, rows

    @classmethod
    def n_max(cls, p: SpeculativeParams) -> int:
        return p.spec_draft_n_max

    @property
    def contexts(self) -> Sequence[Context]:
        return [self.ctx]

    def observe(self, seen: Sequence[ComputedTokens]) -> None:
        for part in seen:
            assert part.h is not None
            self._states[part.seq_id] = part.pos, part.h
            if self.few is not None:
                self.few.add(part.tokens)

    def shift(self, seq_id: int, pos: int, n: int, end: int) -> None:
        self._states.pop(seq_id, None)

    def draft(self, requests: Sequence[DraftRequest]) -> Mapping[int, list[int]]:
        rows = {r.seq_id: h for r in requests if (h := self._previous_state(r)) is not None}
        tokens = {r.seq_id: int(r.ids[-1]) for r in requests}
        open = [r for r in requests if r.seq_id in rows]
        guesses: dict[int, list[int]] = {r.seq_id: [] for r in open}
        while open:
            logits, h = self._decode(open, tokens, rows)
            for r, scores, row in zip([*open], logits, h, strict=True):
                id = likeliest(scores, self.few, self.setting.params.spec_draft_p_min)
                if id is not None:
                    guesses[r.seq_id].append(id)
                    tokens[r.seq_id], rows[r.seq_id] = id, row
                if id is None or len(guesses[r.seq_id]) == r.n_max:
                    open.remove(r)
        return long_enough(guesses, self.setting.params)

    def _previous_state(self, r: DraftRequest) -> F32 | None:
        """Return the hidden state before a text's last token, or None."""
        first, rows = self._states.get(r.seq_id, (0, np.empty((0, 0), np.float32)))
        i = r.pos - 1 - first
        held = self.setting.ctx.memory.seq_pos_max(r.seq_id) + 1
        return rows[i] if 0 <= i < len(rows) and held == r.pos else None

    def _decode(
        self, open: Sequence[DraftRequest], tokens: Mapping[int, int], rows: Mapping[int, F32]
    ) -> tuple[F32, F32]:
        logits = self.ctx.decode(
            Batch(
                [tokens[r.seq_id] for r in open],
                np.stack([rows[r.seq_id] for r in open]),
                [r.pos for r in open],
                [(r.seq_id,) for r in open],
                [True] * len(open),
            )
        )
        assert self.ctx.h_nextn is not None
        return logits, self.ctx.h_nextn

    def close(self) -> None:
        self.setting.ctx.set_embeddings_nextn(False)
        self.ctx.close()

"""Drafting of a block of tokens at once, from mask tokens
(common_speculative_impl_draft_dflash)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np

from ggml_py.errors import ContextError, ModelError
from llama_py.batch import F32, Batch
from llama_py.context import Context
from llama_py.decoding.drafting.drafter import ComputedTokens, Drafter, DrafterSetting, DraftRequest
from llama_py.decoding.drafting.drafters._model import (
    create_draft_context,
    likeliest,
    load_draft_model,
    long_enough,
    take_out,
)
from llama_py.params.speculative import SpeculativeParams


class BlockDrafter(Drafter):
    """Drafter that stores hidden states of the target's layers in its memory. A block of the last
    token and masks attends to the states; its cells are then removed.

    n      maximum number of draft tokens
    block  format of a draft block
    inputs  by sequence, the first position and the last inputs of the encoder; LiLiCorr needs its
            result for the token before a block
    """

    name: ClassVar[str]
    uses_draft_model = True

    def __init__(self, setting: DrafterSetting) -> None:
        super().__init__(setting)
        target, model = setting.ctx, load_draft_model(setting, self.name)
        rules, given = model.architecture.draft_rules, target.model.hparams.n_embd
        assert rules.block is not None
        self.layers, self.block = rules.target_layers, rules.block
        if model.hparams.n_embd != given:
            raise ModelError(
                f"{model.file.path} is a draft model for embedding length "
                f"{model.hparams.n_embd}, but {target.model.file.path} has {given}; use the "
                "draft model of this model"
            )
        mask = model.tokenizer.special_ids.get("mask")
        if mask is None:
            raise ModelError(
                f"{model.file.path} has no mask token (tokenizer.ggml.mask_token_id); convert it "
                "again"
            )
        if setting.params.spec_draft_p_min and self.block.chained and not self.block.sure:
            raise ContextError(
                f"{self.name}: {model.file.path} has no draft probabilities; use "
                "spec_draft_p_min = 0"
            )
        self.mask = mask
        self.n = min(setting.params.spec_draft_n_max, self.block.size - self.block.first)
        target.set_embeddings_layer_inp(self.layers)
        try:
            self.ctx = create_draft_context(
                target, model, setting.params, target=target, swa_full=True
            )
        except BaseException:
            target.set_embeddings_layer_inp(())
            raise
        self.ctx.set_embeddings_nextn(self.block.sure or self.block.n_pairs > 0)
        self.inputs: dict[int, tuple[int, F32]] = {}

    @classmethod
    def n_max(cls, p: SpeculativeParams) -> int:
        return p.spec_draft_n_max

    @property
    def contexts(self) -> Sequence[Context]:
        return [self.ctx]

    def observe(self, seen: Sequence[ComputedTokens]) -> None:
        n = self.ctx.cparams.n_ubatch
        for part in seen:
            rows = np.concatenate([part.layer_inp[il] for il in self.layers], axis=1)
            self._hold(part.seq_id, part.pos)
            if self.block.anchored:  # rejected tokens can make an earlier row the last
                end, kept = part.pos + len(rows), rows[-self.n - 1 :]
                self.inputs[part.seq_id] = end - len(kept), kept.copy()
            for i in range(0, len(rows), n):
                some = rows[i : i + n]
                pos = range(part.pos + i, part.pos + i + len(some))
                sets, none = [(part.seq_id,)] * len(some), [False] * len(some)
                self.ctx.decode(Batch(None, some, pos, sets, none))

    def _hold(self, seq_id: int, end: int) -> None:
        """Remove positions from `end` on; remove all if earlier positions are missing."""
        memory = self.ctx.memory
        if not memory.seq_rm(seq_id, end, -1) or memory.seq_pos_max(seq_id) + 1 != end:
            memory.seq_rm(seq_id)

    def shift(self, seq_id: int, pos: int, n: int, end: int) -> None:
        self.inputs.pop(seq_id, None)
        if self.ctx.memory.can_shift and self.ctx.memory.seq_pos_max(seq_id) + 1 >= end > pos + n:
            take_out(self.ctx, seq_id, pos, n, end)
        else:
            self.ctx.memory.seq_rm(seq_id)

    def draft(self, requests: Sequence[DraftRequest]) -> Mapping[int, list[int]]:
        guesses: dict[int, list[int]] = {}
        able = []
        for r in requests:
            self._hold(r.seq_id, r.pos)
            if self.ctx.memory.seq_pos_max(r.seq_id) + 1 == r.pos and self._has_state(r):
                able.append(r)
        for group, n in self._batch_requests(able):
            guesses |= self._draft_group(group, n)
        return long_enough(guesses, self.setting.params)

    def _draft_group(self, group: Sequence[DraftRequest], n: int) -> dict[int, list[int]]:
        """Draft blocks of a group and remove them from memory again."""
        try:
            return self._guess(group, n)
        except ContextError:  # too few free cells in a unified KV cache
            return {}
        finally:
            for r in group:
                self._hold(r.seq_id, r.pos)

    def _batch_requests(
        self, requests: Sequence[DraftRequest]
    ) -> Iterator[tuple[Sequence[DraftRequest], int]]:
        """Yield requests with blocks in one batch, and their draft length."""
        cp, first = self.ctx.cparams, self.block.first
        n = min(self.n, cp.n_ubatch - first)
        n_added = self._length(n) - n
        if n < 1 or n + n_added > cp.n_ubatch:
            return
        step = cp.n_ubatch // (n + n_added)
        for i in range(0, len(requests), step):
            group = requests[i : i + step]
            room = min([n, *(cp.n_ctx_seq - r.pos - n_added for r in group)])
            if room > 0 and (room == n or not self.block.anchored):
                yield group, room

    def _guess(self, group: Sequence[DraftRequest], n: int) -> dict[int, list[int]]:
        """Draft n tokens after each text."""
        size = self._length(n)
        logits = self.ctx.decode(
            Batch(
                [id for r in group for id in (int(r.ids[-1]), *[self.mask] * (size - 1))],
                self._states(group, size) if self.block.anchored else None,
                pos=[r.pos + i for r in group for i in range(size)],
                seq_ids=[(r.seq_id,) for r in group for _ in range(size)],
                outputs=[True] * (size * len(group)),
            )
        )
        made = {}
        for i, r in enumerate(group):
            rows = slice(i * size + self.block.first, i * size + self.block.first + n)
            h = None if self.ctx.h_nextn is None else self.ctx.h_nextn[rows]
            made[r.seq_id] = self._choose(logits[rows], h)[: r.n_max]
        return made

    def _length(self, n: int) -> int:
        """Return the number of a block's tokens for n draft tokens."""
        return self.block.size if self.block.anchored else n + self.block.first

    def _has_state(self, r: DraftRequest) -> bool:
        """Return True if the state before the text's last token is available or not needed."""
        if not self.block.anchored:
            return True
        first, rows = self.inputs.get(r.seq_id, (0, ()))
        return first < r.pos <= first + len(rows)

    def _states(self, group: Sequence[DraftRequest], size: int) -> F32:
        """Return the state before each block in its first row, [size * blocks, n_embd]."""
        rows = []
        for r in group:
            first, known = self.inputs[r.seq_id]
            rows.append(known[r.pos - 1 - first])
        self.ctx.encode(Batch(None, np.stack(rows)))
        assert self.ctx.h_nextn is not None
        found = np.zeros((len(group), size, self.ctx.h_nextn.shape[1]), np.float32)
        found[:, 0] = self.ctx.h_nextn
        return found.reshape(len(group) * size, -1)

    def _choose(self, logits: F32, h: F32 | None) -> list[int]:
        """Choose tokens by logits [n, n_vocab] and h [n, n_embd] (confidence or pair scores)."""
        p_min, block = self.setting.params.spec_draft_p_min, self.block
        if block.n_pairs:
            assert h is not None
            return _following(h, block.n_pairs, p_min)
        found: list[int] = []
        for i, row in enumerate(logits):
            if block.sure and h is not None and h[i, 0] < p_min:
                break
            id = likeliest(row, None, 0.0 if block.chained else p_min)
            if id is None:
                break
            found.append(id)
        return found

    def close(self) -> None:
        self.setting.ctx.set_embeddings_layer_inp(())
        self.ctx.close()


def _following(rows: F32, k: int, p_min: float) -> list[int]:
    """Choose for each position the token that follows the previous one best. Rows have k tokens,
    then k scores after each of the k before."""
    found, before = list[int](), 0
    for row in rows:
        scores = row[k * (1 + before) : k * (2 + before)].astype(np.float64)
        before = int(scores.argmax())
        if p_min > 0 and 1 / np.exp(scores - scores[before]).sum() < p_min:
            break
        found.append(int(row[before]))
    return found

"""Drafts of NextN (MTP) layers: each token from its predecessor and the hidden state before that
(common_speculative_impl_draft_mtp)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ggml_py.errors import ContextError
from llama_py.batch import F32
from llama_py.decoding.drafting.draft_vocabulary import draft_vocabulary
from llama_py.decoding.drafting.drafter import ComputedTokens, Drafter, DrafterSetting, drafter
from llama_py.decoding.drafting.drafters._model import create_draft_context
from llama_py.decoding.drafting.drafters._shared_memory import SharedMemoryDrafter
from llama_py.decoding.drafting.drafters._states import Drafting, StatesDrafter
from llama_py.decoding.drafting.vocabulary import check_same_vocabulary
from llama_py.loading.model import LoadedModel
from llama_py.params.speculative import SpeculativeParams


class DraftMtp(StatesDrafter):
    """NextN layers (heads) of the model or of another file, each in a separate context.

    They process every token of the model with the model's state before it. The input state of
    a draft token is an output of its head. With several heads, the n-th head drafts the n-th
    token, and processes the draft tokens before it again.
    """

    loads_nextn = True
    name = "draft-mtp"

    @classmethod
    def create(cls, setting: DrafterSetting) -> Drafter:
        given = setting.model_draft
        if given is not None and given.architecture.draft_rules.shares_memory:
            return SharedMemoryDrafter(setting, cls.name)
        return cls(setting)

    def __init__(self, setting: DrafterSetting) -> None:
        super().__init__(setting)
        target, given = setting.ctx, setting.model_draft
        model = target.model
        if given is not None and (given.architecture.can_draft or not _is_shared(setting.params)):
            model = given
        _check(target.model, model)
        n_heads = min(model.hparams.n_layer_nextn, setting.params.spec_draft_n_max)
        self.heads = [
            create_draft_context(target, model, setting.params, mtp=True, nextn_layer=i)
            for i in range(n_heads)
        ]
        n_tokens = setting.params.spec_draft_vocab
        self.few = [draft_vocabulary(ctx, n_tokens) for ctx in self.heads]
        for ctx in (target, *self.heads):
            ctx.set_embeddings_nextn(True, masked=ctx is not target)
        self.n_embd = model.hparams.n_embd_hidden

    def encode_states(self, seen: Sequence[ComputedTokens]) -> list[F32]:
        return [part.h for part in seen if part.h is not None]

    def guess(self, drafting: list[Drafting]) -> None:
        if len(self.heads) > 1:
            self._chain(drafting)
        else:
            super().guess(drafting)

    def _chain(self, drafting: list[Drafting]) -> None:
        """Draft with one head per token; each processes known tokens and earlier heads' drafts."""
        for head, few in zip(self.heads, self.few, strict=True):
            parts = []
            for d in drafting:
                more = np.array(d.guess_h, np.float32).reshape(-1, self.n_embd)
                parts.append((d, [*d.tokens, *d.guess], np.concatenate((d.h, more))))
            rows = self.decode(head, parts)
            for d, row in zip(drafting, rows, strict=True):
                if d.open:
                    d.take(*row, few, self.setting.params.spec_draft_p_min)


def _is_shared(p: SpeculativeParams) -> bool:
    """Return True if `model_draft` may be for another draft method."""
    return sum(drafter(name).uses_draft_model for name in p.drafters) > 1


def _check(target: LoadedModel, model: LoadedModel) -> None:
    """Raise ContextError if the layers are missing or do not fit this model."""
    if not model.architecture.can_draft:
        n, arch = model.hparams.n_layer_nextn, model.arch
        why = "they are not loaded, use load_mtp=True" if n else "the model has none"
        raise ContextError(
            f"draft-mtp needs the NextN layers of {model.file.path} ({arch}): {why}; or pass a "
            "model_draft with NextN layers"
        )
    if model is target:
        return
    check_same_vocabulary(target, model)
    if "decoder_mtp" not in target.architecture.gtypes:
        raise ContextError(
            f"draft-mtp: models of architecture {target.arch!r} do not expose their hidden states"
        )
    sizes = model.hparams.n_embd_hidden, target.hparams.n_embd_hidden
    if sizes[0] != sizes[1]:
        raise ContextError(
            f"draft-mtp: the NextN layers of {model.file.path} need hidden states of length "
            f"{sizes[0]}, but the model's have {sizes[1]}"
        )

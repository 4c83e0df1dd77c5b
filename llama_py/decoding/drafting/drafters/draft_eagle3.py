"""Drafts of a layer trained for the model: each token from its predecessor and the hidden states of
the token before that (common_speculative_impl_draft_eagle3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ggml_py.errors import ContextError, ModelError
from llama_py.batch import F32, Batch
from llama_py.context import Context
from llama_py.decoding.drafting.drafter import ComputedTokens, DrafterSetting
from llama_py.decoding.drafting.drafters._model import create_draft_context, load_draft_model
from llama_py.decoding.drafting.drafters._states import StatesDrafter
from llama_py.loading.model import LoadedModel


class DraftEagle3(StatesDrafter):
    """Drafter that reads pairs of a state, computed from the model's hidden states, and the token
    after it, at the state's position. Draft tokens use the draft's own states."""

    name = "draft-eagle3"
    lag = 1

    def __init__(self, setting: DrafterSetting) -> None:
        super().__init__(setting)
        target = setting.ctx
        model = load_draft_model(setting, self.name)
        self.layers: tuple[int, ...] = model.architecture.draft_rules.target_layers
        _check(target.model, model, self.layers)
        ctx = create_draft_context(target, model, setting.params, target=target)
        self.n_embd, self.heads, self.few = model.hparams.n_embd, [ctx], [None]
        try:
            self._ask(target)
        except BaseException:
            self.close()
            raise
        ctx.set_embeddings_nextn(True, masked=True)

    def _ask(self, target: Context) -> None:
        """Request the layers' inputs, and the last layer's output if `layers` include it."""
        n_layer = target.model.hparams.n_layer
        target.set_embeddings_layer_inp(il for il in self.layers if il < n_layer)
        if n_layer in self.layers:
            if not target.gives_nextn:
                raise ContextError(
                    f"{self.name}: models of architecture {target.model.arch!r} do not expose "
                    "their last hidden states"
                )
            target.set_embeddings_nextn(True)

    def encode_states(self, seen: Sequence[ComputedTokens]) -> list[F32]:
        """Encode the states of all parts in batches of the encoder's size."""
        if not seen:
            return []
        ctx = self.heads[0]
        rows = np.concatenate([self._features(part) for part in seen])
        n = ctx.cparams.n_ubatch
        made = [ctx.encode(Batch(embd=rows[i : i + n])) for i in range(0, len(rows), n)]
        ends = np.cumsum([len(part.tokens) for part in seen])
        return np.split(np.concatenate(made), ends[:-1])

    def _features(self, part: ComputedTokens) -> F32:
        """Return the joined hidden states, [n_tokens, n_embd of the model * layers]."""
        found = [part.layer_inp.get(il, part.h) for il in self.layers]
        return np.concatenate([rows for rows in found if rows is not None], axis=1)

    def close(self) -> None:
        self.setting.ctx.set_embeddings_layer_inp(())
        super().close()


def _check(target: LoadedModel, model: LoadedModel, layers: Sequence[int]) -> None:
    """Raise ModelError unless the draft model fits this model's dimensions and layers."""
    ours, there = target.hparams, model.hparams
    n_target = there.n_embd_inp_enc // len(layers)
    if n_target != ours.n_embd:
        raise ModelError(
            f"{model.file.path} is a draft model for embedding length {n_target}, but "
            f"{target.file.path} has {ours.n_embd}; use the draft model of this model"
        )
    if max(layers) > ours.n_layer:
        raise ModelError(
            f"{model.file.path} reads the input of layer {max(layers)}, but {target.file.path} "
            f"has {ours.n_layer} layers; use the draft model of this model"
        )

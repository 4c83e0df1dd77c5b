"""DeepSeek-V3.2: latent attention to the tokens that an indexer chooses, experts after the first
layers, a NextN layer that drafts (models/deepseek32.cpp)."""

from __future__ import annotations

from llama_py.models.trunks.decoder import Layer
from llama_py.models.trunks.dsa import ChoosingAttention, ChoosingDrafter, ChoosingHParams
from llama_py.models.trunks.latent import YarnLatentHParams
from llama_py.weights import Weights


class Deepseek32HParams(ChoosingHParams, YarnLatentHParams):
    pass


class Deepseek32(ChoosingDrafter):
    arch = "deepseek32"
    sizes = {61: "685B.A37B"}
    HParams = Deepseek32HParams
    sizes = {61: "685B.A37B"}
    hp: Deepseek32HParams

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            ChoosingAttention(w, hp),
            w.norm("ffn_norm", hp.n_embd),
            self.feed_forward(w, il, need_shexp=True, scaled=True),
        )

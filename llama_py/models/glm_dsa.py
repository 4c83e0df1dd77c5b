"""GLM-5: latent attention to tokens that this or an earlier layer's indexer chooses; experts after
the first layers, a NextN layer that drafts (models/glm-dsa.cpp)."""

from __future__ import annotations

from ggml_py.tensor import Tensor
from llama_py.gguf.keys import Keys, trunk_layers, uints
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams.layer_shape import ROPE_NORMAL
from llama_py.models.trunks.decoder import Layer
from llama_py.models.trunks.dsa import (
    ChoosingAttention,
    ChoosingDrafter,
    ChoosingHParams,
    SharingAttention,
)
from llama_py.weights import Weights

N_CTX_5_2 = 1 << 20  # from this context on, files without indexer.types are GLM-5.2's
N_LAYER_5_2 = 78


def _indexer_types(hp: GlmDsaHParams) -> list[int]:
    """Return the default of indexer_types: all layers have an indexer, or in GLM-5.2 the first
    three and then every fourth."""
    if hp.n_ctx_train < N_CTX_5_2:
        return [1] * hp.n_layer
    return [int(il < 3 or (il % 4 == 2 and il < N_LAYER_5_2)) for il in range(hp.n_layer)]


class GlmDsaHParams(ChoosingHParams):
    """Hyperparameters; indexer_types: per layer, 1 has an indexer, 0 uses the last one's choice."""

    usual_gating = "sigmoid"
    indexer_rope = ROPE_NORMAL
    f_norm_eps = 0.0  # llama.cpp has no epsilon here
    indexer_types: tuple[int, ...] = uints(
        "attention.indexer.types", _indexer_types, count=trunk_layers
    )

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.indexers = self.last_indexers(keys, self.indexer_types)

    def indexer_layer(self, il: int) -> int:
        return self.indexers[il] if il < self.n_layer else -1


class GlmAttention(SharingAttention):
    """Attention that names the chosen tokens in each layer that uses them."""

    def choose(self, g: GraphBuilder, cur: Tensor, small: Tensor, il: int) -> Tensor | None:
        chosen = super().choose(g, cur, small, il)
        return None if chosen is None else g.cb(chosen, "top_k", il)


class GlmDsa(ChoosingDrafter):
    arch = "glm-dsa"
    sizes = {78: "744B.A40B"}
    HParams = GlmDsaHParams
    hp: GlmDsaHParams

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        alone = il < hp.n_layer and all(hp.indexer_types)
        attention = ChoosingAttention if alone else GlmAttention
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            attention(w, hp),
            w.norm("ffn_norm", hp.n_embd),
            self.feed_forward(w, il, need_shexp=True, scaled=True),
        )

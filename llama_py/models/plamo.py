"""PLaMo: attention and feed-forward in parallel (models/plamo.cpp)."""

from __future__ import annotations

from llama_py.blocks.attention import Attention
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.decoder import ParallelLayer
from llama_py.models.trunks.plain import PlainDecoder, WholeHParams
from llama_py.weights import Weights


class PlamoHParams(WholeHParams):
    rope_type = ROPE_NEOX


class Plamo(PlainDecoder):
    arch = "plamo"
    HParams = PlamoHParams
    sizes = {40: "13B"}

    def layer(self, w: Weights, il: int) -> ParallelLayer:
        return ParallelLayer(
            w.norm("attn_norm", self.hp.n_embd),
            Attention(w, self.hp),
            self.feed_forward(w, il),
            order="(fa)x",
        )

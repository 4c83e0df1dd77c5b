"""Falcon: attention and feed-forward in parallel, in the larger models with separate norms
(models/falcon.cpp)."""

from __future__ import annotations

from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.decoder import ParallelLayer
from llama_py.models.trunks.layer_norm import LayerNormDecoder, LayerNormHParams
from llama_py.models.trunks.rules import QuantizeRules
from llama_py.weights import Weights


class FalconHParams(LayerNormHParams):
    rope_type = ROPE_NEOX
    whole_rope = True


class Falcon(LayerNormDecoder):
    arch = "falcon"
    HParams = FalconHParams
    sizes = {32: "7B", 60: "40B"}
    quantize_rules = QuantizeRules(low_mix=True)
    qkv_bias = False

    def layer(self, w: Weights, il: int) -> ParallelLayer:
        return ParallelLayer(
            self.norm(w, "attn_norm"),
            self.attention(w),
            self.feed_forward(w),
            attn_norm_2=w.optional_norm("attn_norm_2", self.hp.n_embd, kind="layer", bias=True),
            order="(fa)x",
        )

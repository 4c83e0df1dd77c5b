"""Phi 1.5 and 2: attention and feed-forward in parallel on the same norm; matrices with biases,
also the head (models/phi2.cpp)."""

from __future__ import annotations

from llama_py.blocks.attention import Attention, ScaledAttention
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.decoder import ParallelLayer
from llama_py.models.trunks.layer_norm import LayerNormDecoder, LayerNormHParams
from llama_py.weights import Weights


class Phi2HParams(LayerNormHParams):
    rope_type = ROPE_NEOX


class Phi2(LayerNormDecoder):
    arch = "phi2"
    HParams = Phi2HParams
    sizes = {24: "1B", 32: "3B"}
    names = {"Qcur_scaled": ""}
    output_bias = out_bias = ffn_bias = "needed"

    def declare_ends(self, w: Weights) -> None:
        super().declare_ends(w)
        self.output.before_bias = "result_output_no_bias"

    def layer(self, w: Weights, il: int) -> ParallelLayer:
        norm, attention = self.norm(w, "attn_norm"), self.attention(w)
        return ParallelLayer(norm, attention, self.feed_forward(w), order="(af)x")

    def attention(self, w: Weights) -> Attention:
        return ScaledAttention(w, self.hp, out_bias=self.out_bias)

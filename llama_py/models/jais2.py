"""Jais 2: norms and matrices with biases, and squares of positive values in the feed-forward
(models/jais2.cpp)."""

from __future__ import annotations

from llama_py.blocks.activation import RELU_SQR
from llama_py.blocks.attention import Attention
from llama_py.blocks.feed_forward import FeedForward
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.layer_norm import LayerNormDecoder, LayerNormHParams
from llama_py.models.trunks.rules import QuantizeRules
from llama_py.weights import Weights


class Jais2HParams(LayerNormHParams):
    rope_type = ROPE_NEOX
    whole_rope = True


class Jais2(LayerNormDecoder):
    arch = "jais2"
    HParams = Jais2HParams
    quantize_rules = QuantizeRules(is_70b=lambda n_layer, *_: n_layer == 68)
    sizes = {32: "8B", 68: "70B"}
    out_bias = ffn_bias = "needed"
    act = RELU_SQR

    def attention(self, w: Weights) -> Attention:
        attention = Attention(w, self.hp, out_bias=self.out_bias, turned=("Qcur_rope", "Kcur_rope"))
        attention.output.prec = "f32"
        return attention

    def feed_forward(self, w: Weights) -> FeedForward:
        feed_forward = super().feed_forward(w)
        feed_forward.down.prec = "f32"
        return feed_forward

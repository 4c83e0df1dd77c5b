"""Jais: norms and matrices with biases; what is far off counts less, and products of queries and
keys are divided by the heads' size, not by its root (models/jais.cpp)."""

from __future__ import annotations

from llama_py.blocks.activation import SILU
from llama_py.blocks.attention import Attention
from llama_py.gguf.keys import number
from llama_py.models.trunks.layer_norm import LayerNormDecoder, LayerNormHParams
from llama_py.weights import Weights


class JaisHParams(LayerNormHParams):
    max_alibi_bias: float = number("attention.max_alibi_bias", 0.0, least=0)


class Jais(LayerNormDecoder):
    arch = "jais"
    HParams = JaisHParams
    sizes = {24: "1.3B", 40: "13B"}
    qkv_bias = out_bias = ffn_bias = "needed"
    act, gated = SILU, True

    def attention(self, w: Weights) -> Attention:
        scale = 1.0 / self.hp.layers[w.il].n_embd_head_k
        return Attention(w, self.hp, bias=self.qkv_bias, out_bias=self.out_bias, kq_scale=scale)

"""Jais: ALiBi, norms and matrices with biases; scores are divided by the head size, not its square
root (models/jais.cpp)."""

from __future__ import annotations

from llama_py.blocks.activation import SILU
from llama_py.gguf.keys import Keys, number
from llama_py.models.trunks.layer_norm import LayerNormDecoder, LayerNormHParams


class JaisHParams(LayerNormHParams):
    max_alibi_bias: float = number("attention.max_alibi_bias", 0.0, least=0)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.attention_scale = 1.0 / self.n_embd_head_k


class Jais(LayerNormDecoder):
    arch = "jais"
    HParams = JaisHParams
    sizes = {24: "1.3B", 40: "13B"}
    qkv_bias = out_bias = ffn_bias = "needed"
    act, gated = SILU, True

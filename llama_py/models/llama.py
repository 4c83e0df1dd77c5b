"""Llama 1 to 3, Mistral and Mixtral, and the many models of their shape (models/llama.cpp)."""

from __future__ import annotations

from llama_py.blocks.attention import Attention
from llama_py.blocks.experts import Experts
from llama_py.blocks.feed_forward import FeedForward
from llama_py.geometry import ROPE_NORMAL
from llama_py.hparams import RMS_EPS, HParams
from llama_py.keys import number
from llama_py.models._decoder import Layer, LongDecoder
from llama_py.weights import Weights


class LlamaHParams(HParams):
    rope_type = ROPE_NORMAL
    required_heads = equal_heads = whole_rope = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)


class Llama(LongDecoder):
    arch = "llama"
    HParams = LlamaHParams
    layer_sum = "ffn_out"

    @classmethod
    def is_70b(cls, n_layer: int, n_head: int, n_head_kv: int) -> bool:
        return n_layer == 80 and n_head != n_head_kv

    def layer(self, w: Weights, il: int) -> Layer:
        hp, n_ff = self.hp, self.hp.layers[il].n_ff
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            Attention(w, hp, out_bias=True, factors=self.factors, name="attn_out"),
            w.norm("ffn_norm", hp.n_embd),
            Experts(w, hp, n_ff, gate_optional=True)
            if hp.n_expert
            else FeedForward(w, hp.n_embd, n_ff, bias=True),
        )

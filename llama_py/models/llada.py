"""LLaDA: Llama's layers with bidirectional attention, for diffusion (models/llada.cpp)."""

from __future__ import annotations

from llama_py.blocks.attention import Attention
from llama_py.blocks.feed_forward import FeedForward
from llama_py.gguf.keys import number
from llama_py.hparams import RMS_EPS, HParams
from llama_py.hparams.layer_shape import ROPE_NORMAL
from llama_py.models.trunks.decoder import Layer, LongDecoder
from llama_py.models.trunks.rules import Diffusion
from llama_py.weights import Weights


class LladaHParams(HParams):
    rope_type = ROPE_NORMAL
    cached = False
    required_heads = equal_heads = whole_rope = True
    causal_attn = False
    f_norm_rms_eps: float = number(RMS_EPS, least=0)


class Llada(LongDecoder):
    arch = "llada"
    HParams = LladaHParams
    diffusion = Diffusion()
    freqs_unread = True
    sizes = {32: "8B"}

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            Attention(w, hp, out_bias="unread", factors=self.factors),
            w.norm("ffn_norm", hp.n_embd),
            FeedForward(w, hp.n_embd, hp.layers[il].n_ff, bias="unread", scaled=False),
        )

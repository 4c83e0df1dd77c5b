"""Baichuan: Llama with 32 layers; with 40 of them positions do not turn heads, but what is far off
counts less (models/baichuan.cpp)."""

from __future__ import annotations

from llama_py.blocks.attention import Attention
from llama_py.blocks.feed_forward import FeedForward
from llama_py.geometry import ROPE_NORMAL
from llama_py.hparams import RMS_EPS, HParams
from llama_py.keys import Keys, number
from llama_py.models._decoder import Decoder, Layer
from llama_py.weights import Weights


class BaichuanHParams(HParams):
    """As in llama.cpp a model of another size knows no positions at all."""

    required_heads = equal_heads = whole_rope = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)

    def load(self, keys: Keys) -> None:
        if self.n_layer == 32:
            self.rope_type = ROPE_NORMAL
        elif self.n_layer == 40:
            self.max_alibi_bias = 8.0


class Baichuan(Decoder):
    arch = "baichuan"
    HParams = BaichuanHParams
    sizes = {32: "7B", 40: "13B"}

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            Attention(w, hp),
            w.norm("ffn_norm", hp.n_embd),
            FeedForward(w, hp.n_embd, hp.layers[il].n_ff, scaled=False),
        )

"""LLaDA: Llama's layers, where every token sees every other; for diffusion (models/llada.cpp)."""

from __future__ import annotations

from llama_py.blocks.attention import Attention
from llama_py.blocks.feed_forward import FeedForward
from llama_py.geometry import ROPE_NORMAL
from llama_py.hparams import RMS_EPS, HParams
from llama_py.keys import number
from llama_py.models._decoder import Decoder, Layer
from llama_py.weights import Weights


class LladaHParams(HParams):
    rope_type = ROPE_NORMAL
    cached = False
    required_heads = equal_heads = whole_rope = True
    causal_attn = False
    f_norm_rms_eps: float = number(RMS_EPS, least=0)


class Llada(Decoder):
    arch = "llada"
    HParams = LladaHParams
    diffuses = True
    sizes = {32: "8B"}

    def declare_ends(self, w: Weights) -> None:
        super().declare_ends(w)
        w.skip("rope_freqs.weight")  # llama.cpp loads them, and turns heads without

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        w.skip("attn_output.bias", "ffn_gate.bias", "ffn_up.bias", "ffn_down.bias")
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            Attention(w, hp),
            w.norm("ffn_norm", hp.n_embd),
            FeedForward(w, hp.n_embd, hp.layers[il].n_ff, scaled=False),
        )

"""Gemma 2: every other layer sees a window of tokens; scores and logits are kept below a cap
(models/gemma2.cpp)."""

from __future__ import annotations

from ggml_py.ops import scale
from ggml_py.tensor import Tensor
from llama_py.blocks.activation import GELU
from llama_py.blocks.attention import Attention
from llama_py.blocks.feed_forward import FeedForward
from llama_py.blocks.functions import inv_sqrt
from llama_py.geometry import ROPE_NEOX
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import RMS_EPS, WindowedHParams
from llama_py.keys import Keys, number, uint
from llama_py.models._decoder import Decoder, Layer
from llama_py.weights import Weights

N_LAYER_27B = 46  # the largest model scales queries by another size


class Gemma2HParams(WindowedHParams):
    rope_type = ROPE_NEOX
    required_heads = equal_heads = True
    n_pattern = 2
    n_swa: int = uint("attention.sliding_window", 4096)
    rope_freq_base_swa: float = number("rope.freq_base_swa", lambda hp: hp.rope_freq_base_train)
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    attn_logit_softcap: float = number("attn_logit_softcapping", 50.0, least=0)
    final_logit_softcap: float = number("final_logit_softcapping", 30.0, least=0)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.rope_freq_scale_swa = self.rope_freq_scale_train

    @property
    def attention_scale(self) -> float:
        """On queries."""
        largest = self.n_layer == N_LAYER_27B
        return inv_sqrt(self.n_embd // self.n_head_first if largest else self.n_embd_head_k)


class Gemma2(Decoder):
    """A window or a cap of 0 is none; llama.cpp divides by such a cap."""

    arch = "gemma2"
    HParams = Gemma2HParams
    hp: Gemma2HParams
    names = {"ffn_inp": "sa_out"}

    def embed(self, g: GraphBuilder) -> Tensor:
        return g.cb(scale(super().embed(g), self.hp.n_embd**0.5), "inp_scaled")

    def layer(self, w: Weights, il: int) -> Layer:
        hp, n_embd = self.hp, self.hp.n_embd
        return Layer(
            w.norm("attn_norm", n_embd),
            Attention(w, hp, q_scale=hp.attention_scale),
            w.norm("ffn_norm", n_embd),
            FeedForward(w, n_embd, hp.layers[il].n_ff, act=GELU, scaled=False),
            attn_post_norm=w.norm("post_attention_norm", n_embd),
            ffn_post_norm=w.norm("post_ffw_norm", n_embd),
            post_ffn_il=(False, False),
        )

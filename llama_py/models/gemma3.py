"""Gemma 3: most layers see a window of tokens; each block's result is normed once more
(models/gemma3.cpp)."""

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
from llama_py.keys import number
from llama_py.models._decoder import Decoder, Layer
from llama_py.weights import Weights

N_LAYER_27B = 62  # the largest model scales queries by another size


class Gemma3HParams(WindowedHParams):
    rope_type = ROPE_NEOX
    required_heads = equal_heads = True
    n_pattern = 6
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    final_logit_softcap: float = number("final_logit_softcapping", 0.0)

    @property
    def attention_scale(self) -> float:
        """On queries."""
        largest = self.n_layer == N_LAYER_27B
        return inv_sqrt(self.n_embd // self.n_head_first if largest else self.n_embd_head_k)


class Gemma3(Decoder):
    arch = "gemma3"
    HParams = Gemma3HParams
    hp: Gemma3HParams
    names = {"ffn_inp": "sa_out"}

    def embed(self, g: GraphBuilder) -> Tensor:
        # embeddings of images come scaled
        factor = self.hp.n_embd**0.5 if g.ubatch.token is not None else 1.0
        return g.cb(scale(super().embed(g), factor), "inp_scaled")

    def layer(self, w: Weights, il: int) -> Layer:
        hp, n_embd, n_embd_head = self.hp, self.hp.n_embd, self.hp.layers[il].n_embd_head_k
        norms = w.norm("attn_q_norm", n_embd_head), w.norm("attn_k_norm", n_embd_head)
        return Layer(
            w.norm("attn_norm", n_embd),
            Attention(w, hp, q_norm=norms[0], k_norm=norms[1], q_scale=hp.attention_scale),
            w.norm("ffn_norm", n_embd),
            FeedForward(w, n_embd, hp.layers[il].n_ff, act=GELU, scaled=False),
            attn_post_norm=w.norm("post_attention_norm", n_embd),
            ffn_post_norm=w.norm("post_ffw_norm", n_embd),
        )

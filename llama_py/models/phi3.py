"""Phi 3 and 4: gate and up are one matrix; factors of frequencies for short and for long contexts
(models/phi3.cpp).

A window in the file is not used, like in llama.cpp: converters did not specify the layers with
windows.
"""

from __future__ import annotations

from ggml_py.ops import add
from ggml_py.tensor import Tensor
from llama_py.blocks.activation import SWIGLU
from llama_py.blocks.attention import ScaledAttention
from llama_py.blocks.feed_forward import FeedForward
from llama_py.gguf.keys import number
from llama_py.hparams import RMS_EPS, HParams
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.decoder import Layer, LongDecoder
from llama_py.weights import Weights


class Phi3HParams(HParams):
    rope_type = ROPE_NEOX
    required_heads = equal_heads = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)


class Phi3Layer(Layer):
    def ffn_sum(self, x: Tensor, cur: Tensor) -> Tensor:
        return add(x, cur)


class Phi3(LongDecoder):
    arch = "phi3"
    HParams = Phi3HParams
    sizes = {24: "1B", 32: "3B", 40: "14B"}
    names = {"Qcur_scaled": "Qcur", "ffn_inp": ""}
    long_factors = True

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        return Phi3Layer(
            w.norm("attn_norm", hp.n_embd),
            ScaledAttention(w, hp, factors=self.factors),
            w.norm("ffn_norm", hp.n_embd),
            FeedForward(w, hp.n_embd, hp.layers[il].n_ff, act=SWIGLU, scaled=False),
        )

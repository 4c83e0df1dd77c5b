"""Phi 3 and 4: gate and up are one matrix; factors of frequencies for short and for long contexts
(models/phi3.cpp).

A window that the file says is not used, as in llama.cpp: converters did not say which layers have
one.
"""

from __future__ import annotations

from ggml_py.ops import scale
from ggml_py.tensor import Tensor
from llama_py.blocks.activation import SWIGLU
from llama_py.blocks.attention import QKV, Attention
from llama_py.blocks.feed_forward import FeedForward
from llama_py.blocks.functions import inv_sqrt
from llama_py.geometry import ROPE_NEOX
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import RMS_EPS, HParams
from llama_py.keys import number
from llama_py.memory.kept import KeysValues
from llama_py.models._decoder import Layer, LongDecoder
from llama_py.weights import Weights


class Phi3HParams(HParams):
    rope_type = ROPE_NEOX
    required_heads = equal_heads = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)


class Phi3(LongDecoder):
    arch = "phi3"
    HParams = Phi3HParams
    sizes = {24: "1B", 32: "3B", 40: "14B"}
    names = {"ffn_inp": ""}
    long_factors = True

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            ScaledQueries(w, hp, factors=self.factors, kq_scale=1.0),
            w.norm("ffn_norm", hp.n_embd),
            FeedForward(w, hp.n_embd, hp.layers[il].n_ff, act=SWIGLU, scaled=False),
            input_first=True,
        )


class ScaledQueries(Attention):
    """Queries are scaled before they meet the keys, and keep their name."""

    parts_keep = KeysValues

    def place(self, g: GraphBuilder, qkv: QKV, il: int) -> tuple[Tensor, Tensor]:
        q, k = super().place(g, qkv, il)
        return g.cb(scale(q, inv_sqrt(q.ne[0])), "Qcur", il), k

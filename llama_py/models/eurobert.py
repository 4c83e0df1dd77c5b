"""EuroBERT: Llama's layers with bidirectional attention (models/eurobert.cpp)."""

from __future__ import annotations

from ggml_py.tensor import Tensor
from llama_py.blocks.attention import Attention
from llama_py.blocks.feed_forward import FeedForward
from llama_py.gguf.keys import number
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import RMS_EPS, HParams
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.decoder import Layer
from llama_py.models.trunks.encoder import Encoder
from llama_py.weights import Weights


class EuroBertHParams(HParams):
    rope_type = ROPE_NEOX
    cached = False
    required_heads = equal_heads = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)


class EuroBert(Encoder):
    arch = "eurobert"
    HParams = EuroBertHParams
    sizes = {12: "0.1B"}
    names = {"attn_norm": "", "l_out": ""}

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            Attention(w, hp, name="kqv_out"),
            w.norm("ffn_norm", hp.n_embd),
            FeedForward(w, hp.n_embd, hp.layers[il].n_ff, scaled=False),
        )

    def embed(self, g: GraphBuilder) -> Tensor:
        return g.cb(super().embed(g), "inp_embd")

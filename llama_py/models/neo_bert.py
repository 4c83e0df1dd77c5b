"""NeoBERT: norms before blocks, RoPE, a gated feed-forward (models/neo-bert.cpp)."""

from __future__ import annotations

from ggml_py.tensor import Tensor
from llama_py.blocks.activation import SWIGLU
from llama_py.blocks.attention import Attention, Projections
from llama_py.blocks.feed_forward import FeedForward
from llama_py.blocks.pooling import classifier
from llama_py.gguf.keys import number
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import RMS_EPS, HParams
from llama_py.hparams.layer_shape import ROPE_NORMAL
from llama_py.models.trunks.decoder import Layer
from llama_py.models.trunks.encoder import Encoder
from llama_py.weights import Weights


class NeoBertHParams(HParams):
    rope_type = ROPE_NORMAL
    cached = False
    required_heads = equal_heads = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)


class NeoBert(Encoder):
    arch = "neo-bert"
    HParams = NeoBertHParams
    sizes = {28: "250M"}
    names = {"attn_norm": "", "l_out": ""}

    def declare_ends(self, w: Weights) -> None:
        self.classifier = classifier(w, self.hp)
        self.output_norm = w.norm("enc.output_norm", self.hp.n_embd)

    def layer(self, w: Weights, il: int) -> Layer:
        hp, n_ff = self.hp, self.hp.layers[il].n_ff
        qkv = Projections(w, hp.n_embd, hp.layers[il], bias=False)
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            Attention(w, hp, qkv=qkv, name="kqv_out"),
            w.norm("ffn_norm", hp.n_embd),
            FeedForward(w, hp.n_embd, n_ff, act=SWIGLU, scaled=False, name=""),
        )

    def embed(self, g: GraphBuilder) -> Tensor:
        return g.cb(super().embed(g), "inp_embd")

"""GPT-2: learned positions, norms and matrices with biases (models/gpt2.cpp)."""

from __future__ import annotations

from ggml_py.tensor import Tensor
from llama_py.blocks.activation import GELU
from llama_py.blocks.attention import Attention
from llama_py.blocks.feed_forward import FeedForward
from llama_py.blocks.learned_positions import LearnedPositions
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import EPS, HParams
from llama_py.keys import number
from llama_py.linear import Norm
from llama_py.models._decoder import Decoder, Layer
from llama_py.weights import Weights


class Gpt2HParams(HParams):
    required_heads = equal_heads = True
    f_norm_eps: float = number(EPS, least=0)


class Gpt2(Decoder):
    arch = "gpt2"
    HParams = Gpt2HParams
    sizes = {12: "0.1B", 24: "0.4B", 36: "0.8B", 48: "1.5B"}
    hp: Gpt2HParams

    def declare_ends(self, w: Weights) -> None:
        self.positions = LearnedPositions(w, self.hp)
        self.output_norm = self.norm(w, "output_norm")
        self.output = w.output(self.hp.n_embd, self.hp.n_vocab)

    def norm(self, w: Weights, stem: str) -> Norm:
        return w.norm(stem, self.hp.n_embd, kind="layer", bias="needed")

    def embed(self, g: GraphBuilder) -> Tensor:
        return self.positions(g, super().embed(g))

    def layer(self, w: Weights, il: int) -> Layer:
        hp, n_ff = self.hp, self.hp.layers[il].n_ff
        return Layer(
            self.norm(w, "attn_norm"),
            Attention(w, hp, bias="needed", out_bias="needed"),
            self.norm(w, "ffn_norm"),
            FeedForward(w, hp.n_embd, n_ff, act=GELU, gated=False, bias="needed", scaled=False),
        )

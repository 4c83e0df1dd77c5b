"""BERT and its variants: post-norm layers between a normed embedding and its results
(models/bert.cpp:graph)."""

from __future__ import annotations

from dataclasses import dataclass

from ggml_py.ops import add, view
from ggml_py.tensor import Tensor
from llama_py.blocks.activation import GELU
from llama_py.blocks.attention import Attention
from llama_py.blocks.feed_forward import FeedForward
from llama_py.gguf.keys import number, uint
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Norm
from llama_py.hparams import EPS, HParams
from llama_py.models.trunks.decoder import Block
from llama_py.models.trunks.encoder import Encoder
from llama_py.weights import Weights


class BertHParams(HParams):
    required_heads = equal_heads = True
    cached = False
    f_norm_eps: float = number(EPS, least=0)
    n_token_types: int = uint("/tokenizer.ggml.token_type_count", least=1)


@dataclass(slots=True)
class PostNormLayer:
    """Sums are normed: x = norm(x + attention(x)), then norm(x + feed_forward(x)).

    attn_norm_2  x is added to the first sum again, and the result gets this norm
    """

    attention: Block
    attn_out_norm: Norm
    feed_forward: Block
    layer_out_norm: Norm
    attn_norm_2: Norm | None = None

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int, last: bool) -> Tensor:
        residual, cur = cur, self.attention(g, cur, il)
        if last:  # only output rows remain
            cur, residual = g.outputs(cur, residual)
        ffn_inp = self.attn_out_norm(g, add(cur, residual), il=il)
        if self.attn_norm_2 is not None:
            ffn_inp = self.attn_norm_2(g, add(ffn_inp, residual), il=il)
        g.cb(ffn_inp, "ffn_inp", il)
        cur = self.feed_forward(g, ffn_inp, il)
        return self.layer_out_norm(g, add(cur, ffn_inp), il=il)


class BertEncoder(Encoder):
    """Embeddings of token and kind of text, normed, through post-norm layers."""

    HParams = BertHParams
    hp: BertHParams

    def declare_ends(self, w: Weights) -> None:
        hp = self.hp
        self.type_embd = w.optional_tensor("token_types.weight", hp.n_embd, hp.n_token_types)
        self.tok_norm = w.norm("token_embd_norm", hp.n_embd, kind="layer", bias="needed")

    def layer(self, w: Weights, il: int) -> PostNormLayer:
        return PostNormLayer(
            self.attention(w),
            self.norm(w, "attn_output_norm"),
            self.feed_forward(w, il),
            self.norm(w, "layer_output_norm"),
        )

    def norm(self, w: Weights, stem: str) -> Norm:
        return w.norm(stem, self.hp.n_embd, kind="layer", bias="needed")

    def attention(self, w: Weights) -> Block:
        return Attention(w, self.hp, out_bias=True, name="kqv_out")

    def feed_forward(self, w: Weights, il: int) -> Block:
        n_ff = self.hp.layers[il].n_ff
        return FeedForward(w, self.hp.n_embd, n_ff, act=GELU, gated=False, bias=True, scaled=False)

    def embed(self, g: GraphBuilder) -> Tensor:
        """Return normed embeddings: of the token, and of the first token type."""
        cur = super().embed(g)
        if self.type_embd is not None:
            cur = add(cur, view(self.type_embd, (self.hp.n_embd,)))
        return self.tok_norm(g, g.cb(self.place(g, cur), "inp_embd"), "inp_norm", 0)

    def normalize_output(self, g: GraphBuilder, cur: Tensor) -> Tensor:
        return cur

    def place(self, g: GraphBuilder, cur: Tensor) -> Tensor:
        """Add learned position embeddings, if the model has them. [n_embd, n_tokens]"""
        return cur

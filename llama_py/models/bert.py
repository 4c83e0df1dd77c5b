"""BERT and its many children: embeddings and rerankers (models/bert.cpp)."""

from __future__ import annotations

from dataclasses import dataclass

from ggml_py.ops import add, get_rows, view
from ggml_py.tensor import Tensor
from llama_py.blocks.activation import GELU
from llama_py.blocks.attention import Attention
from llama_py.blocks.feed_forward import FeedForward
from llama_py.blocks.pooling import Classifier
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import EPS, HParams
from llama_py.keys import number, uint
from llama_py.linear import Norm
from llama_py.models._encoder import Encoder
from llama_py.weights import Weights


class BertHParams(HParams):
    required_heads = equal_heads = True
    f_norm_eps: float = number(EPS, least=0)
    n_token_types: int = uint("/tokenizer.ggml.token_type_count", least=1)


@dataclass(slots=True)
class PostNormLayer:
    """Sums are normed: x = norm(x + attention(x)), then norm(x + feed_forward(x))."""

    attention: Attention
    attn_out_norm: Norm
    feed_forward: FeedForward
    layer_out_norm: Norm

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int, last: bool) -> Tensor:
        residual, cur = cur, self.attention(g, cur, il)
        if last:  # only outputs go on
            cur, residual = g.outputs(cur, residual)
        ffn_inp = self.attn_out_norm(g, add(cur, residual), il=il)
        g.cb(ffn_inp, "ffn_inp", il)
        cur = self.feed_forward(g, ffn_inp, il)
        return self.layer_out_norm(g, add(cur, ffn_inp), il=il)


class Bert(Encoder):
    arch = "bert"
    HParams = BertHParams
    sizes = {3: "17M", 6: "22M", (12, 384): "33M", (12, 768): "109M", 24: "335M"}
    hp: BertHParams

    def declare_ends(self, w: Weights) -> None:
        hp = self.hp
        self.type_embd = w.optional_tensor("token_types.weight", hp.n_embd, hp.n_token_types)
        self.pos_embd = w.tensor("position_embd.weight", hp.n_embd, hp.n_ctx_train)
        self.tok_norm = w.norm("token_embd_norm", hp.n_embd, kind="layer", bias="needed")
        self.classifier = Classifier(
            w.optional_linear("cls", hp.n_embd, hp.n_embd, bias=True, scaled=False),
            w.optional_linear("cls.output", hp.n_embd, hp.n_cls_out, bias=True, scaled=False),
        )

    def layer(self, w: Weights, il: int) -> PostNormLayer:
        hp = self.hp

        def norm(stem: str) -> Norm:
            return w.norm(stem, hp.n_embd, kind="layer", bias="needed")

        return PostNormLayer(
            Attention(w, hp, out_bias=True, cached=False, name="kqv_out"),
            norm("attn_output_norm"),
            FeedForward(
                w, hp.n_embd, hp.layers[il].n_ff, act=GELU, gated=False, bias=True, scaled=False
            ),
            norm("layer_output_norm"),
        )

    def embed(self, g: GraphBuilder) -> Tensor:
        """Of token, kind of text (always the first) and position, normed."""
        cur = super().embed(g)
        if self.type_embd is not None:
            cur = add(cur, view(self.type_embd, (self.hp.n_embd,)))
        cur = add(get_rows(self.pos_embd, g.inp_pos), cur)
        return self.tok_norm(g, g.cb(cur, "inp_embd"), "inp_norm", 0)

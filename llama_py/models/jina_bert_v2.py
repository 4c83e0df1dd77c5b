"""Jina Embeddings 2 and their rerankers: BERT with ALiBi and a gated feed-forward
(models/jina-bert-v2.cpp)."""

from __future__ import annotations

from ggml_py.ops import reshape
from ggml_py.tensor import Tensor
from llama_py.blocks.activation import GEGLU, GELU
from llama_py.blocks.attention import QKV, Attention
from llama_py.blocks.feed_forward import FeedForward
from llama_py.blocks.pooling import Classifier
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Norm
from llama_py.models.trunks.bert import BertEncoder, BertHParams, PostNormLayer
from llama_py.models.trunks.decoder import Block
from llama_py.weights import Weights


class JinaBertV2HParams(BertHParams):
    max_alibi_bias = 8.0


class JinaAttention(Attention):
    """Norms are over the queries, and over the keys, of all heads."""

    def normalize_heads(self, g: GraphBuilder, qkv: QKV, il: int) -> QKV:
        return QKV(
            _normalize(g, self.q_norm, qkv.q, il), _normalize(g, self.k_norm, qkv.k, il), qkv.v
        )


def _normalize(g: GraphBuilder, norm: Norm | None, x: Tensor, il: int) -> Tensor:
    """Normalize x [d, n_head, n_tokens] over all heads, if there is a norm."""
    if norm is None:
        return x
    d, n_head, n_tokens, _ = x.ne
    return reshape(norm(g, reshape(x, d * n_head, n_tokens), il=il), d, n_head, n_tokens)


class JinaBertV2(BertEncoder):
    arch = "jina-bert-v2"
    HParams = JinaBertV2HParams
    sizes = {4: "33M", 12: "137M"}

    def declare_ends(self, w: Weights) -> None:
        super().declare_ends(w)
        self.classifier = Classifier(
            w.optional_linear("cls", self.hp.n_embd, 1, bias=True, scaled=False)
        )

    def layer(self, w: Weights, il: int) -> PostNormLayer:
        layer = super().layer(w, il)
        layer.attn_norm_2 = w.optional_norm("attn_norm_2", self.hp.n_embd, kind="layer", bias=True)
        return layer

    def attention(self, w: Weights) -> Block:
        hp, shape = self.hp, self.hp.layers[w.il]
        q_norm, k_norm = (
            w.optional_norm(f"attn_{part}_norm", n, kind="layer", bias=True)
            for part, n in (("q", shape.n_embd_q), ("k", shape.n_embd_k_gqa))
        )
        norms = q_norm, k_norm
        return JinaAttention(w, hp, out_bias="needed", norms=norms, name="kqv_out")

    def feed_forward(self, w: Weights, il: int) -> Block:
        """Declare a feed-forward with a separate gate, a gate joined with `up`, or no gate."""
        n_ff = self.hp.layers[il].n_ff
        gated, up = w.has("ffn_gate.weight"), w.info("ffn_up.weight")
        both = not gated and up is not None and up.ne[1] != n_ff
        return FeedForward(
            w,
            self.hp.n_embd,
            n_ff,
            act=GEGLU if both else GELU,
            gated=gated,
            bias=True,
            scaled=False,
        )

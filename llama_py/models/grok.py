"""Grok: scales and caps on products, embeddings and logits; a dense feed-forward may be parallel to
the experts (models/grok.cpp).

Flash attention is not available, like in llama.cpp: capped products are scaled before the cap.
"""

from __future__ import annotations

import numpy as np

from ggml_py.ops import add, scale
from ggml_py.tensor import Tensor
from llama_py.blocks.activation import GELU
from llama_py.blocks.attention import Attention
from llama_py.blocks.experts import Experts, ExpertSet
from llama_py.blocks.feed_forward import FeedForward
from llama_py.blocks.softmax import Scores
from llama_py.gguf.keys import HIGHEST_BASE, Keys, divisor, number, uints
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.memory.specs import KVCacheSpec
from llama_py.models.trunks.decoder import Block, Decoder, Layer
from llama_py.models.trunks.experts import RoutedHParams
from llama_py.weights import Weights

HALF_ROOT = 2**0.5 / 2


class GrokHParams(RoutedHParams):
    """Defaults are the first Grok's; its files omit the keys.

    attn_out_scale, score_cap  factor of products of queries and keys, and their limit
    """

    rope_type = ROPE_NEOX
    required_heads = equal_heads = whole_rope = True
    flash_attn = False
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    n_ff_exp: tuple[int, ...] = uints("expert_feed_forward_length", 0)
    logit_scale: float = number("logit_scale", 0.5773502691896257)
    embedding_scale: float = number("embedding_scale", 78.38367176906169)
    attn_out_scale: float = number("attention.output_scale", 0.08838834764831845)
    score_cap: float = divisor("attn_logit_softcapping", 30.0)
    final_logit_softcap: float = divisor("final_logit_softcapping", 0.0)
    yarn_ext_factor: float = number("rope.scaling.yarn_ext_factor", -1.0, most=HIGHEST_BASE)
    yarn_attn_factor: float = number("rope.scaling.yarn_attn_factor", 1.0, most=HIGHEST_BASE)
    yarn_beta_fast: float = number("rope.scaling.yarn_beta_fast", 8.0, least=0)
    yarn_beta_slow: float = number("rope.scaling.yarn_beta_slow", 1.0, least=0)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.n_ff_exp = tuple(own or n for own, n in zip(self.n_ff_exp, self.n_ff, strict=True))
        if not self.score_cap:
            raise keys.error(
                "attn_logit_softcapping", "must not be 0, because products are divided by it"
            )


class Grok(Decoder):
    arch = "grok"
    HParams = GrokHParams
    hp: GrokHParams
    sizes = {64: "314B"}
    names = {"attn_post_norm": "attn_out_norm"}
    layer_sum = "ffn_out"

    def layer(self, w: Weights, il: int) -> Layer:
        hp, n_embd = self.hp, self.hp.n_embd
        post_norm = "layer_output_norm" if w.has("layer_output_norm.weight") else "post_ffw_norm"
        return Layer(
            w.norm("attn_norm", n_embd),
            CappedAttention(w, hp),
            w.norm("ffn_norm", n_embd),
            self.feed_forward(w, il),
            attn_post_norm=w.norm("attn_output_norm", n_embd),
            ffn_post_norm=w.norm(post_norm, n_embd),
            post_ffn_il=(True, True),
        )

    def feed_forward(self, w: Weights, il: int) -> Block:
        hp = self.hp
        experts = Experts(
            w, hp, hp.n_ff_exp[il], experts=ExpertSet(gate="optional", scaled=False), act=GELU
        )
        if not w.has("ffn_up.weight"):
            return experts
        return DenseExpertSum(
            FeedForward(w, hp.n_embd, hp.layers[il].n_ff, act=GELU, scaled=False), experts
        )


class CappedAttention(Attention):
    """Scales products, then limits them by a cap."""

    parts_keep = KVCacheSpec

    def __init__(self, w: Weights, hp: GrokHParams) -> None:
        super().__init__(w, hp)
        f32 = np.float32
        self.cap = float(f32(hp.attn_out_scale) / f32(hp.score_cap)), hp.score_cap

    def scores(self, g: GraphBuilder, il: int) -> Scores:
        return Scores(1.0, cap=self.cap)


class DenseExpertSum:
    """A dense feed-forward and experts: their sum, over the square root of two."""

    parts_keep = None

    def __init__(self, dense: FeedForward, experts: Experts) -> None:
        self.dense, self.experts = dense, experts

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Add experts and dense feed-forward: [n_embd, n] -> same shape."""
        moe = self.experts(g, cur, il)
        return g.cb(scale(add(self.dense(g, cur, il), moe), HALF_ROOT), "ffn_out", il)

"""MPT: ALiBi or learned positions; queries, keys and values may be clamped, or queries and keys
normed over all heads (models/mpt.cpp)."""

from __future__ import annotations

from ggml_py.ops import cont, div, reshape
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import QKV, Attention
from llama_py.blocks.feed_forward import FeedForward
from llama_py.blocks.learned_positions import LearnedPositions
from llama_py.gguf.keys import number
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Norm
from llama_py.models.trunks.layer_norm import LayerNormDecoder, LayerNormHParams
from llama_py.weights import Weights


class MptHParams(LayerNormHParams):
    clamp_kqv: float = number("attention.clamp_kqv", 0.0, least=0)
    max_alibi_bias: float = number("attention.max_alibi_bias", 0.0, least=0)


class Mpt(LayerNormDecoder):
    arch = "mpt"
    HParams = MptHParams
    sizes = {32: "7B", 48: "30B"}
    norm_bias = out_bias = ffn_bias = True

    def declare_ends(self, w: Weights) -> None:
        hp = self.hp
        positions = w.optional_tensor("position_embd.weight", hp.n_embd, hp.n_ctx_train)
        self.positions = None if positions is None else LearnedPositions(positions)
        super().declare_ends(w)

    def embed(self, g: GraphBuilder) -> Tensor:
        embd = super().embed(g)
        return embd if self.positions is None else self.positions(g, embd)

    def attention(self, w: Weights) -> Attention:
        """Declare attention; norms of keys need norms of queries, like in llama.cpp."""
        shape = self.hp.layers[w.il]
        n_q, n_k = shape.n_embd_q, shape.n_embd_k_gqa
        q_norm = w.optional_norm("attn_q_norm", n_q, kind="layer", bias=True)
        if q_norm is not None:
            k_norm = w.optional_norm("attn_k_norm", n_k, kind="layer", bias=True)
            k_norm = k_norm or Norm(kind="layer")
        else:
            parts = [w.unread_tensor(f"attn_k_norm.{part}", n_k) for part in ("weight", "bias")]
            if parts[0] is None:
                return super().attention(w)
            k_norm = Norm(parts[0], parts[1], "layer")
        return MptAttention(w, self.hp, out_bias=True, norms=(q_norm, k_norm))

    def feed_forward(self, w: Weights) -> FeedForward:
        n_embd, n_ff = self.hp.n_embd, self.hp.layers[w.il].n_ff
        made = DividedFeedForward(
            w, n_embd, n_ff, act=self.act, gated=False, bias=True, scaled=False
        )
        made.act_scales = w.optional_tensor("ffn.act.scales", n_ff)
        return made


class DividedFeedForward(FeedForward):
    """Feed-forward with optional divisors F32 [n_ff] of its activations."""

    parts_keep = None
    act_scales: Tensor | None = None

    def _activate(self, g: GraphBuilder, up: Tensor, il: int) -> Tensor:
        cur = super()._activate(g, up, il)
        return cur if self.act_scales is None else g.cb(div(cur, self.act_scales), "ffn_act", il)


class MptAttention(Attention):
    """Queries and keys are normed over all heads, so that devices cannot share them."""

    def normalize_heads(self, g: GraphBuilder, qkv: QKV, il: int) -> QKV:
        q, k = (
            x if norm is None else self._normalize(g, norm, x, il)
            for x, norm in ((qkv.q, self.q_norm), (qkv.k, self.k_norm))
        )
        return QKV(q, k, qkv.v)

    def _normalize(self, g: GraphBuilder, norm: Norm, x: Tensor, il: int) -> Tensor:
        flat = reshape if x.is_contiguous() else cont  # llama.cpp fails on a part of one matrix
        rows = flat(x, x.ne[0] * x.ne[1], x.ne[2])
        return reshape(norm(g, rows, il=il), *x.ne)

"""BitNet b1.58: norms before the output and down projections (models/bitnet.cpp)."""

from __future__ import annotations

from ggml_py.ops import div, mul, scale, sqr, sqrt, sum_rows
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import Attention, Projections
from llama_py.blocks.feed_forward import FeedForward
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Norm
from llama_py.hparams import HParams
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.hparams.shard import Steps
from llama_py.memory.specs import KVCacheSpec
from llama_py.models.trunks.decoder import Block
from llama_py.models.trunks.plain import PlainDecoder, PlainHParams
from llama_py.weights import Weights


class BitNetHParams(PlainHParams):
    rope_type = ROPE_NEOX


class BitNet(PlainDecoder):
    arch = "bitnet"
    HParams = BitNetHParams
    sizes = {26: "3B"}
    layer_sum = "l_out"
    names = {"ffn_swiglu": "ffn_sub_out"}

    def attention(self, w: Weights, il: int) -> Block:
        return SubNormedAttention(w, self.hp)

    def feed_forward(self, w: Weights, il: int) -> Block:
        return SubNormedFeedForward(w, self.hp)


class SubNormedAttention(Attention):
    """n_all  dimensions of all heads' results"""

    parts_keep = KVCacheSpec

    def __init__(self, w: Weights, hp: HParams) -> None:
        shape = hp.layers[w.il]
        qkv = Projections(w, hp.n_embd, shape, bias=False)
        super().__init__(w, hp, qkv=qkv, name="attn_out")
        self.sub_norm = w.norm("attn_sub_norm", shape.n_embd_v_out)
        self.n_all = shape.n_embd_head_v * hp.n_head[w.il]

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        seen = self.attend(g, self.project(g, cur, il), il)
        return self._project(g, self.sub_norm(g, seen, "attn_sub_norm", il), il)

    def steps(self, g: GraphBuilder, cur: Tensor, il: int) -> Steps:
        """Attend with a share of the heads, yielding for the norm over all heads."""
        seen = self.attend(g, self.project(g, cur, il), il)
        normed = yield from normed_in_parts(g, seen, self.sub_norm, self.n_all)
        return self._project(g, normed, il)

    def _project(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        return g.cb(self.output(g, cur), self.name, il)


class SubNormedFeedForward(FeedForward):
    """n_all  FFN size of all parts"""

    parts_keep = None

    def __init__(self, w: Weights, hp: HParams) -> None:
        n_ff = hp.layers[w.il].n_ff
        super().__init__(w, hp.n_embd, n_ff, name="ffn_down")
        self.sub_norm, self.n_all = w.norm("ffn_sub_norm", n_ff), hp.n_ff[w.il]

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        hidden = self.compute_hidden(g, cur, il)
        return self.project_down(g, self.sub_norm(g, hidden, "ffn_sub_norm", il), il)

    def steps(self, g: GraphBuilder, cur: Tensor, il: int) -> Steps:
        """Apply a share of the feed-forward, yielding for the norm over all dimensions."""
        hidden = self.compute_hidden(g, cur, il)
        normed = yield from normed_in_parts(g, hidden, self.sub_norm, self.n_all)
        return self.project_down(g, normed, il)


def normed_in_parts(g: GraphBuilder, x: Tensor, norm: Norm, n: int) -> Steps:
    """Normalize a part of rows of n dimensions, first yielding their mean square."""
    mean = yield scale(sum_rows(sqr(x)), 1.0 / n)  # [1, n_tokens]
    assert norm.weight is not None
    return mul(div(x, sqrt(scale(mean, 1.0, g.hp.f_norm_rms_eps))), norm.weight)

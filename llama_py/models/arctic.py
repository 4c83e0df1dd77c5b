"""Arctic: a dense feed-forward in every layer, and parallel experts that read the layer's input
(models/arctic.cpp)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ggml_py.ops import add
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import Attention
from llama_py.blocks.experts import UNSCALED, Experts
from llama_py.blocks.feed_forward import FeedForward
from llama_py.gguf.keys import Keys, number
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Norm
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NORMAL, LayerShape
from llama_py.models.trunks.architecture import AnyHParams
from llama_py.models.trunks.decoder import Block, Decoder
from llama_py.models.trunks.experts import RoutedHParams
from llama_py.weights import Weights


class ArcticHParams(RoutedHParams):
    """feed_forward_length is the experts' size; the hidden size of the dense part is n_embd."""

    rope_type = ROPE_NORMAL
    required_heads = equal_heads = whole_rope = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.n_ff_exp = self.n_ff

    def layer(self, il: int) -> LayerShape:
        return replace(super().layer(il), n_ff=self.n_embd)


class Arctic(Decoder):
    arch = "arctic"
    HParams = ArcticHParams
    layer_sum = "ffn_out"

    @classmethod
    def size_name(cls, hp: AnyHParams) -> str:
        return "10B+128x3.66B" if (hp.n_expert, hp.n_layer) == (128, 35) else "?B"

    def layer(self, w: Weights, il: int) -> DenseAndExperts:
        hp, n_embd = self.hp, self.hp.n_embd
        return DenseAndExperts(
            w.norm("attn_norm", n_embd),
            Attention(w, hp),
            w.norm("ffn_norm", n_embd),
            FeedForward(w, n_embd, hp.layers[il].n_ff, scaled=False),
            w.norm("ffn_norm_exps", n_embd),
            Experts(w, hp, hp.n_ff_exp[il], experts=UNSCALED),
        )


@dataclass(slots=True)
class DenseAndExperts:
    """y = x + attention(norm(x)); y + feed_forward(norm(y)) + experts(norm(x))"""

    attn_norm: Norm
    attention: Block
    ffn_norm: Norm
    feed_forward: Block
    experts_norm: Norm
    experts: Block

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int, last: bool) -> Tensor:
        x, cur = cur, self.attention(g, self.attn_norm(g, cur, "attn_norm", il), il)
        if last:  # only output rows remain
            cur, x = g.outputs(cur, x)
        ffn_inp = g.cb(add(cur, x), "ffn_inp", il)
        cur = self.feed_forward(g, self.ffn_norm(g, ffn_inp, "ffn_norm", il), il)
        dense = g.cb(add(cur, ffn_inp), "ffn_out", il)
        return add(self.experts(g, self.experts_norm(g, x, "ffn_norm_exps", il), il), dense)

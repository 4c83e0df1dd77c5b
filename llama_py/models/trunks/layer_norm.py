"""Decoders with layer norms, which also subtract the mean, instead of RMS norms."""

from __future__ import annotations

from typing import ClassVar

from llama_py.blocks.activation import GELU, Activation
from llama_py.blocks.attention import Attention, Projections
from llama_py.blocks.feed_forward import FeedForward
from llama_py.gguf.keys import number
from llama_py.graph.linear import Norm
from llama_py.hparams import EPS, HParams
from llama_py.models.trunks.architecture import AnyHParams
from llama_py.models.trunks.decoder import AnyLayer, Decoder, Layer
from llama_py.weights import Bias, Weights


class LayerNormHParams(HParams):
    required_heads = equal_heads = True
    f_norm_eps: float = number(EPS, least=0)


class LayerNormDecoder(Decoder):
    """Attention, then a feed-forward, each after such a norm.

    norm_bias, qkv_bias, out_bias, ffn_bias   presence of biases: in norms, in the projections
                 to and from heads, in the feed-forward
    act, gated   activation of the feed-forward; ffn_name  name of its result
    """

    HParams: ClassVar[type[AnyHParams]] = LayerNormHParams
    norm_bias: ClassVar[Bias] = "needed"
    qkv_bias: ClassVar[Bias] = True
    out_bias: ClassVar[Bias] = False
    ffn_bias: ClassVar[Bias] = False
    act: ClassVar[Activation] = GELU
    gated: ClassVar[bool] = False
    ffn_name: ClassVar[str] = "ffn_out"

    def declare_ends(self, w: Weights) -> None:
        hp = self.hp
        self.output_norm = self.norm(w, "output_norm")
        self.output = w.output(hp.n_embd, hp.n_vocab, bias=self.output_bias)

    def norm(self, w: Weights, stem: str) -> Norm:
        return w.norm(stem, self.hp.n_embd, kind="layer", bias=self.norm_bias)

    def layer(self, w: Weights, il: int) -> AnyLayer:
        return Layer(
            self.norm(w, "attn_norm"),
            self.attention(w),
            self.norm(w, "ffn_norm"),
            self.feed_forward(w),
        )

    def attention(self, w: Weights) -> Attention:
        qkv = Projections(w, self.hp.n_embd, self.hp.layers[w.il], bias=self.qkv_bias)
        return Attention(w, self.hp, qkv=qkv, out_bias=self.out_bias)

    def feed_forward(self, w: Weights) -> FeedForward:
        return FeedForward(
            w,
            self.hp.n_embd,
            self.hp.layers[w.il].n_ff,
            act=self.act,
            gated=self.gated,
            bias=self.ffn_bias,
            scaled=False,
            name=self.ffn_name,
        )

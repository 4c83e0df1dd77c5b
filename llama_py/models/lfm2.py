"""LFM2: short convolutions, and attention in some layers, perhaps windowed (models/lfm2.cpp)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggml_py.tensor import Tensor
from llama_py.blocks.attention import QKV, Attention, head_norms
from llama_py.blocks.feed_forward import FeedForward
from llama_py.blocks.rope import rope
from llama_py.blocks.short_conv import ShortConv
from llama_py.gguf.keys import Keys, number, uint
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Linear
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NEOX, Window
from llama_py.hparams.shard import Shard
from llama_py.memory.specs import KVCacheSpec
from llama_py.models.trunks.architecture import AnyHParams
from llama_py.models.trunks.decoder import Block, Decoder
from llama_py.models.trunks.hybrid import MixedHParams, OperatorLayer
from llama_py.weights import Weights

if TYPE_CHECKING:
    from typing_extensions import Self

NAMES = {
    "embd": "model.embed_tokens",
    "attn_norm": "model.layers.{}.operator_norm",
    "Qcur_normed": "model.layers.{}.self_attn.q_layernorm",
    "Kcur_normed": "model.layers.{}.self_attn.k_layernorm",
    "attn_out": "model.layers.{}.self_attn.out_proj",
    "shortconv_in": "model.layers.{}.conv.in_proj",
    "shortconv": "model.layers.{}.conv.conv",
    "shortconv_out": "model.layers.{}.conv.out_proj",
    "ffn_norm": "model.layers.{}.ffn_norm",
    "ffn_out": "model.layers.{}.ffn_out",
}


class Lfm2HParams(MixedHParams):
    """n_shortconv_l_cache, n_embd_conv  width and dimensions of the convolutions, in layers without
    key heads"""

    rope_type = ROPE_NEOX
    required_heads = equal_heads = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    n_shortconv_l_cache: int = uint("shortconv.l_cache", least=2)
    n_swa: int = uint("attention.sliding_window", 0)

    def load(self, keys: Keys) -> None:
        self._of_channels(self.n_embd)

    def _of_channels(self, n: int) -> None:
        self.n_embd_conv, self.n_embd_r = n, (self.n_shortconv_l_cache - 1) * n

    def shared(self, share: Shard) -> Self:
        hp = super().shared(share)
        for il in filter(self.is_recr, range(self.n_layer)):
            hp._of_channels(share.count_own(self.n_embd, 1, "shortconv.out_proj", il=il))
        return hp

    def window(self, il: int) -> Window | None:
        return Window(self.n_swa) if self.n_swa and not self.is_recr(il) else None


class Lfm2Attention(Attention):
    parts_keep = KVCacheSpec

    def place(self, g: GraphBuilder, qkv: QKV, il: int) -> tuple[Tensor, Tensor]:
        return rope(g, qkv.q, il), rope(g, qkv.k, il)


class Lfm2(Decoder):
    arch = "lfm2"
    HParams = Lfm2HParams
    hp: Lfm2HParams
    names = NAMES

    @classmethod
    def size_name(cls, hp: AnyHParams) -> str:
        if cls.sizes:
            return super().size_name(hp)
        sizes = {2560: "230M", 4608: "350M", 6912: "700M", 8192: "1.2B", 10752: "2.6B"}
        return sizes.get(hp.n_ff[0], "?B")

    def declare_ends(self, w: Weights) -> None:
        hp = self.hp
        self.output_norm = w.norm("token_embd_norm", hp.n_embd)  # the name in files
        self.output = w.output(hp.n_embd, hp.n_vocab)
        dense = w.optional_linear("dense_2", hp.n_embd, hp.n_embd_out, bias=True, scaled=False)
        self.dense_out = () if dense is None else (dense,)

    def layer(self, w: Weights, il: int) -> OperatorLayer:
        hp, n_embd = self.hp, self.hp.n_embd
        operator: Block
        if hp.is_recr(il):
            operator = ShortConv(
                w, n_embd, hp.n_embd_conv, hp.n_shortconv_l_cache, causal=hp.causal_attn
            )
        else:
            operator = Lfm2Attention(w, hp, norms=head_norms(w, hp), name="attn_out")
        return OperatorLayer(
            w.norm("attn_norm", n_embd),
            operator,
            w.norm("ffn_norm", n_embd),
            self.feed_forward(w, il),
            ffn_name="ffn_out",
        )

    def feed_forward(self, w: Weights, il: int) -> Block:
        return FeedForward(w, self.hp.n_embd, self.hp.layers[il].n_ff, scaled=False, name="")

    def head(self, g: GraphBuilder, cur: Tensor, output: Linear | None = None) -> None:
        if g.cparams.embeddings:
            g.expand(cur)
        else:
            super().head(g, cur, output)

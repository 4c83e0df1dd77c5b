"""Qwen3, dense: queries and keys are normed head by head before RoPE (models/qwen3.cpp)."""

from __future__ import annotations

from typing import ClassVar

from ggml_py.ops import soft_max
from llama_py.blocks.attention import Attention, head_norms
from llama_py.blocks.feed_forward import FeedForward
from llama_py.blocks.pooling import Classifier
from llama_py.gguf.keys import number
from llama_py.hparams import RMS_EPS, HParams
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.architecture import AnyHParams
from llama_py.models.trunks.decoder import Block, Decoder, Layer
from llama_py.weights import Weights


class Qwen3HParams(HParams):
    rope_type = ROPE_NEOX
    required_heads = equal_heads = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)


class Qwen3(Decoder):
    """reranks  a file may have a projection to scores"""

    arch = "qwen3"
    folds = "qwen3"
    reranks: ClassVar[bool] = True
    HParams: ClassVar[type[AnyHParams]] = Qwen3HParams
    sizes = {(28, 1024): "0.6B", 28: "1.7B", (36, 2560): "4B", 36: "8B", 40: "14B", 64: "32B"}

    def declare(self, w: Weights) -> None:
        super().declare(w)
        if self.reranks:
            out = w.optional_linear("cls.output", self.hp.n_embd, self.hp.n_cls_out)
            self.classifier = Classifier(out=out, after=soft_max)

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            Attention(w, hp, norms=head_norms(w, hp)),
            w.norm("ffn_norm", hp.n_embd),
            self.feed_forward(w, il),
        )

    def feed_forward(self, w: Weights, il: int) -> Block:
        return FeedForward(w, self.hp.n_embd, self.hp.layers[il].n_ff)

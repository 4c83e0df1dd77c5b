"""Granite, dense or with experts: scales on embeddings, block results, scores and logits; later
layers may get parts of image embeddings (models/granite.cpp)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ggml_py.ops import add
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import Attention
from llama_py.blocks.experts import Experts, ExpertSet, SharedExperts
from llama_py.blocks.feed_forward import FeedForward
from llama_py.gguf.keys import Keys, divisor, flag, ints, number, uint
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import RMS_EPS, HParams
from llama_py.hparams.layer_shape import ROPE_NORMAL, Rope
from llama_py.models.trunks.architecture import AnyHParams
from llama_py.models.trunks.decoder import AnyLayer, Block, Layer, LongDecoder
from llama_py.weights import Weights


class ScaledHParams(HParams):
    """residual_scale   factor of attention and feed-forward results; 0: no factor
    logits_divided   logits must be divided
    """

    logits_divided: ClassVar[bool] = True
    rope_type = ROPE_NORMAL
    required_heads = equal_heads = whole_rope = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    logits_divisor: float = divisor("logit_scale")
    residual_scale: float = number("residual_scale", 0.0)
    embedding_scale: float = number("embedding_scale", 0.0)
    attention_scale: float = number("attention.scale", 0.0)
    n_ff_shexp: int = uint("expert_shared_feed_forward_length", 0)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        if self.logits_divisor:
            self.logit_scale = float(np.float32(1.0) / np.float32(self.logits_divisor))
        elif self.logits_divided:
            raise keys.error("logit_scale", "must not be 0")


class SwitchedHParams(ScaledHParams):
    """with_rope  RoPE applies"""

    with_rope: bool = flag("rope.scaling.finetuned", True)

    def rope(self, il: int) -> Rope | None:
        return super().rope(il) if self.with_rope else None


class GraniteHParams(SwitchedHParams):
    """deepstack_mapping   by layer, its part of an embedding; 0 is the whole model's part, -1: no
    part
    """

    deepstack_mapping: tuple[int, ...] = ints("deepstack_mapping", -1, least=-1)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        parts = {i for i in self.deepstack_mapping if i >= 0}
        self.n_deepstack = len(parts)
        if max(parts, default=0) > len(parts):
            raise keys.error(
                "deepstack_mapping", f"must be at most {len(parts)}, the number of inputs"
            )


class ScaledDecoder(LongDecoder):
    """Base of Granite and similar models: scaled block results."""

    hp: ScaledHParams
    layer_sum = "ffn_out"
    names = {"hidden_scaled": "", "hidden_scaled_ffn": ""}

    def layer(self, w: Weights, il: int) -> AnyLayer:
        hp = self.hp
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            self.attention(w, il),
            w.norm("ffn_norm", hp.n_embd),
            self.feed_forward(w, il),
            residual_scale=hp.residual_scale,
        )

    def attention(self, w: Weights, il: int) -> Block:
        return Attention(w, self.hp, out_bias=True, factors=self.factors, name="attn_out")

    def feed_forward(self, w: Weights, il: int) -> Block:
        hp, n_ff = self.hp, self.hp.layers[il].n_ff
        if hp.n_expert == 0:
            return FeedForward(w, hp.n_embd, n_ff, bias=True, scaled=False)
        experts = Experts(w, hp, n_ff, experts=ExpertSet(gate="optional", scaled=False))
        if hp.n_ff_shexp == 0:
            return experts
        return SharedExperts(w, hp, experts, hp.n_ff_shexp, scaled=False)


class DeepstackGranite(ScaledDecoder):
    """Granite with parts for later layers in input embeddings."""

    hp: GraniteHParams

    def layer(self, w: Weights, il: int) -> AnyLayer:
        layer, part = super().layer(w, il), self.hp.deepstack_mapping[il]
        return WithPart(layer, part) if il > 0 and part >= 0 else layer


class Granite(DeepstackGranite):
    arch = "granite"
    HParams = GraniteHParams

    @classmethod
    def size_name(cls, hp: AnyHParams) -> str:
        wide = {2048: "2B", 2560: "3B", 4096: "8B"}.get(hp.n_embd, "?B")
        return {32: "3B", 40: wide, 64: "30B"}.get(hp.n_layer, "?B")


class WithPart:
    """A layer that adds a part of the input embeddings to the result of the preceding layer."""

    def __init__(self, layer: AnyLayer, part: int) -> None:
        self.layer, self.part = layer, part

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int, last: bool) -> Tensor:
        """Add the layer's part of the input embeddings, then apply the layer."""
        cur = g.cb(add(cur, g.deepstack(self.part)), "deepstack_in", il)
        return self.layer(g, cur, il, last)

"""Seed-OSS: Qwen2's layers; the second norm has another name (models/seed-oss.cpp)."""

from __future__ import annotations

from llama_py.blocks.attention import Attention
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.decoder import Layer
from llama_py.models.trunks.plain import PlainDecoder, WholeHParams
from llama_py.weights import Weights


class SeedOssHParams(WholeHParams):
    rope_type = ROPE_NEOX


class SeedOss(PlainDecoder):
    arch = "seed_oss"
    HParams = SeedOssHParams
    sizes = {64: "36B"}
    names = {"ffn_norm": "attn_post_norm"}
    layer_sum = "ffn_out"

    def layer(self, w: Weights, il: int) -> Layer:
        return Layer(
            w.norm("attn_norm", self.hp.n_embd),
            Attention(w, self.hp, name="attn_out"),
            w.norm("post_attention_norm", self.hp.n_embd),
            self.feed_forward(w, il),
        )

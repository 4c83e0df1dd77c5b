"""Llama 1 to 3, Mistral, Mixtral and the many models like them (models/llama.cpp)."""

from __future__ import annotations

from llama_py.blocks.attention import Attention
from llama_py.blocks.experts import Experts, ExpertSet
from llama_py.blocks.feed_forward import FeedForward
from llama_py.hparams.layer_shape import ROPE_NORMAL
from llama_py.models.trunks.architecture import AnyHParams
from llama_py.models.trunks.decoder import Block, LongDecoder
from llama_py.models.trunks.plain import PlainDecoder, WholeHParams
from llama_py.models.trunks.rules import QuantizeRules
from llama_py.weights import Weights


class LlamaHParams(WholeHParams):
    rope_type = ROPE_NORMAL


class Llama(PlainDecoder, LongDecoder):
    arch = "llama"
    folds = "llama"
    HParams = LlamaHParams
    quantize_rules = QuantizeRules(
        is_70b=lambda n_layer, n_head, n_head_kv: n_layer == 80 and n_head != n_head_kv
    )
    sizes = {
        16: "1B",
        22: "1B",
        26: "3B",
        28: "3B",
        30: "256M",
        36: "8B",
        40: "13B",
        48: "34B",
        60: "30B",
        80: "70B",
    }
    layer_sum = "ffn_out"

    @classmethod
    def size_name(cls, hp: AnyHParams) -> str:
        if hp.n_expert == 8:
            return {32: "8x7B", 56: "8x22B"}.get(hp.n_layer, "?B")
        if hp.n_layer == 32:
            return "3B" if hp.n_vocab == 49152 else "7B" if hp.n_vocab < 40000 else "8B"
        if hp.n_layer == 80 and hp.n_head[0] == hp.n_head_kv[0]:
            return "65B"
        return super().size_name(hp)

    def attention(self, w: Weights, il: int) -> Block:
        return Attention(w, self.hp, out_bias=True, factors=self.factors, name="attn_out")

    def feed_forward(self, w: Weights, il: int) -> Block:
        hp, n_ff = self.hp, self.hp.layers[il].n_ff
        if hp.n_expert:
            return Experts(w, hp, n_ff, experts=ExpertSet(gate="optional"))
        return FeedForward(w, hp.n_embd, n_ff, bias=True)

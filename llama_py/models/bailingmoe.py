"""Ling 1: experts in every layer, with shared experts (models/bailingmoe.cpp)."""

from __future__ import annotations

from llama_py.gguf.keys import Keys, number
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NORMAL
from llama_py.models.trunks.decoder import Block
from llama_py.models.trunks.experts import LeadingDenseHParams, expert_layer
from llama_py.models.trunks.plain import PlainDecoder
from llama_py.weights import Weights


class BailingMoeHParams(LeadingDenseHParams):
    """All layers have experts, regardless of leading_dense_block_count."""

    rope_type = ROPE_NORMAL
    required_heads = equal_heads = whole_rope = True
    expert_gating_func = 1
    f_norm_rms_eps: float = number(RMS_EPS, least=0)

    def load(self, keys: Keys) -> None:
        self.n_layer_dense_lead = 0
        super().load(keys)


class BailingMoe(PlainDecoder):
    arch = "bailingmoe"
    HParams = BailingMoeHParams
    hp: BailingMoeHParams
    sizes = {28: "16B", 88: "290B"}

    def feed_forward(self, w: Weights, il: int) -> Block:
        return expert_layer(w, self.hp, il, bias="no")

"""The hybrid decoders' feed-forward with experts: the chosen ones, and a shared one with a gate
(models/qwen35moe.cpp and qwen3next.cpp)."""

from __future__ import annotations

from llama_py.blocks.experts import Experts, SharedExperts
from llama_py.models.trunks.decoder import Block
from llama_py.models.trunks.experts import ExpertHParams
from llama_py.models.trunks.qwen_hybrid import Hybrid, HybridHParams
from llama_py.weights import Weights


class HybridMoeHParams(ExpertHParams, HybridHParams):
    pass


class HybridMoe(Hybrid):
    hp: HybridMoeHParams
    layer_sum = "post_moe"

    def feed_forward(self, w: Weights, il: int) -> Block:
        experts = Experts(w, self.hp, self.hp.n_ff_exp[il], merged=True)
        return SharedExperts(w, self.hp, experts, self.hp.n_ff_shexp, gated=True)

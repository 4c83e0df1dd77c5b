"""LFM2 with mixture of experts after the first layers (models/lfm2moe.cpp)."""

from __future__ import annotations

from llama_py.blocks.experts import UNSCALED, Experts, Routing
from llama_py.models.lfm2 import Lfm2, Lfm2HParams
from llama_py.models.trunks.decoder import Block
from llama_py.models.trunks.experts import LeadingDenseHParams
from llama_py.weights import Weights


class Lfm2MoeHParams(LeadingDenseHParams, Lfm2HParams):
    n_swa: int = 0
    n_expert_shared: int = 0
    expert_weights_scale: float = 0.0
    expert_weights_norm: bool = True


class Lfm2Moe(Lfm2):
    arch = "lfm2moe"
    HParams = Lfm2MoeHParams
    hp: Lfm2MoeHParams
    sizes = {24: "8B.A1B", 40: "24B.A2B"}

    def feed_forward(self, w: Weights, il: int) -> Block:
        hp = self.hp
        if il < hp.n_layer_dense_lead:
            return super().feed_forward(w, il)
        return Experts(
            w,
            hp,
            hp.n_ff_exp[il],
            experts=UNSCALED,
            routing=Routing(gating=hp.gating, bias="needed"),
        )

"""Nomic Embed 2: BERT with RoPE, and with experts in some layers (models/nomic-bert-moe.cpp)."""

from __future__ import annotations

from llama_py.blocks.activation import GELU
from llama_py.blocks.experts import UNNORMED, Experts, ExpertSet, Routing
from llama_py.gguf.keys import Keys, uint
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.bert import BertEncoder, BertHParams
from llama_py.models.trunks.decoder import Block
from llama_py.weights import Weights


class NomicBertMoeHParams(BertHParams):
    """moe_every_n_layers  the second layer of each such period has experts; 0: dense layers only"""

    rope_type = ROPE_NEOX
    moe_every_n_layers: int = uint("moe_every_n_layers", 0)

    def load(self, keys: Keys) -> None:
        self.n_ff_exp = tuple(n if self.has_experts(il) else 0 for il, n in enumerate(self.n_ff))
        if any(self.n_ff_exp) and self.n_expert == 0:
            raise keys.error("expert_count", "must be at least 1")

    def has_experts(self, il: int) -> bool:
        return self.moe_every_n_layers > 0 and il % self.moe_every_n_layers == 1


class NomicBertMoe(BertEncoder):
    arch = "nomic-bert-moe"
    HParams = NomicBertMoeHParams
    hp: NomicBertMoeHParams
    sizes = {12: "475M"}

    def feed_forward(self, w: Weights, il: int) -> Block:
        if not self.hp.has_experts(il):
            return super().feed_forward(w, il)
        return Experts(
            w,
            self.hp,
            self.hp.n_ff_exp[il],
            experts=ExpertSet(gate="optional", scaled=False),
            routing=Routing(router_scaled=False),
            weighing=UNNORMED,
            act=GELU,
        )

"""Qwen3 with mixture of experts: the dense model's attention (models/qwen3moe.cpp)."""

from __future__ import annotations

from llama_py.blocks.experts import Experts
from llama_py.models.qwen3 import Qwen3, Qwen3HParams
from llama_py.models.trunks.decoder import Block
from llama_py.models.trunks.experts import ExpertHParams
from llama_py.weights import Weights


class Qwen3MoeHParams(ExpertHParams, Qwen3HParams):
    pass


class Qwen3Moe(Qwen3):
    arch = "qwen3moe"
    folds = "qwen3moe"
    HParams = Qwen3MoeHParams
    sizes = {48: "30B.A3B", 94: "235B.A22B"}
    hp: Qwen3MoeHParams
    reranks = False

    def feed_forward(self, w: Weights, il: int) -> Block:
        return Experts(w, self.hp, self.hp.n_ff_exp[il])

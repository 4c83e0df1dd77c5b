"""Qwen3-VL with mixture of experts: the dense decoder's attention (models/qwen3vlmoe.cpp)."""

from __future__ import annotations

from llama_py.blocks.experts import UNSCALED, Experts
from llama_py.models.qwen3vl import Qwen3VL, Qwen3VLHParams
from llama_py.models.trunks.decoder import Block
from llama_py.models.trunks.experts import ExpertHParams
from llama_py.weights import Weights


class Qwen3VLMoeHParams(ExpertHParams, Qwen3VLHParams):
    pass


class Qwen3VLMoe(Qwen3VL):
    arch = "qwen3vlmoe"
    HParams = Qwen3VLMoeHParams
    hp: Qwen3VLMoeHParams
    sizes = {48: "30B.A3B", 94: "235B.A22B"}
    reranks = False

    def feed_forward(self, w: Weights, il: int) -> Block:
        return Experts(w, self.hp, self.hp.n_ff_exp[il], experts=UNSCALED)

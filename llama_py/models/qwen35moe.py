"""Qwen3.5 and 3.6 with mixture of experts: delta nets, every fourth layer full attention, and a
shared expert beside the chosen ones (models/qwen35moe.cpp)."""

from __future__ import annotations

from llama_py.hparams import ROPE_IMROPE, Keys
from llama_py.inputs import GraphParams
from llama_py.models._hybrid_moe import HybridMoeGraph, HybridMoeHParams, HybridMoeModel
from llama_py.models._nextn import NextNGraph


class Qwen35MoeHParams(HybridMoeHParams):
    rope_type = ROPE_IMROPE

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.load_rope_sections(keys)


class Qwen35Moe(HybridMoeModel):
    arch = "qwen35moe"
    hparams_class = Qwen35MoeHParams

    def graph(self, params: GraphParams) -> HybridMoeGraph:
        return HybridMoeGraph(self, params)

    def draft_graph(self, params: GraphParams) -> Qwen35MoeDraft:
        return Qwen35MoeDraft(self, params)


class Qwen35MoeDraft(NextNGraph, HybridMoeGraph):
    """Its layer drafts with the same blocks."""

    model: Qwen35Moe

"""Qwen3.5 and 3.6 with mixture of experts: delta nets, every fourth layer full attention, and a
shared expert beside the chosen ones (models/qwen35moe.cpp)."""

from __future__ import annotations

from ggml_py.ops import add, mul, sigmoid
from ggml_py.tensor import Tensor
from llama_py.hparams import ROPE_IMROPE, Keys
from llama_py.inputs import GraphParams
from llama_py.models._hybrid import HybridGraph, HybridHParams, HybridModel
from llama_py.models._nextn import NextNGraph
from llama_py.weights import LayerLoader


class Qwen35MoeHParams(HybridHParams):
    rope_type = ROPE_IMROPE

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.load_rope_sections(keys)
        self.load_expert_sizes(keys)


class Qwen35Moe(HybridModel):
    arch = "qwen35moe"
    hparams_class = Qwen35MoeHParams
    hparams: Qwen35MoeHParams

    def load_feed_forward(self, t: LayerLoader, il: int) -> None:
        hp, n_embd, n_expert = self.hparams, self.hparams.n_embd, self.hparams.n_expert
        t.matrix("ffn_gate_inp", n_embd, n_expert)
        t.matrix("ffn_down_exps", hp.n_ff_exp, n_embd, n_expert)
        t.gate_up_exps(n_embd, hp.n_ff_exp, n_expert)
        t.matrix("ffn_gate_inp_shexp", n_embd)
        t.matrix("ffn_gate_shexp", n_embd, hp.n_ff_shexp)
        t.matrix("ffn_up_shexp", n_embd, hp.n_ff_shexp)
        t.matrix("ffn_down_shexp", hp.n_ff_shexp, n_embd)

    def graph(self, params: GraphParams) -> Qwen35MoeGraph:
        return Qwen35MoeGraph(self, params)

    def draft_graph(self, params: GraphParams) -> Qwen35MoeDraft:
        return Qwen35MoeDraft(self, params)


class Qwen35MoeGraph(HybridGraph):
    model: Qwen35Moe

    def feed_forward(self, cur: Tensor, il: int) -> Tensor:
        layer = self.model.layers[il]
        moe = self.build_moe_ffn(cur, layer, il)
        shexp = self.build_ffn(
            cur, il, up=layer.ffn_up_shexp, gate=layer.ffn_gate_shexp, down=layer.ffn_down_shexp
        )
        self.cb(shexp, "ffn_shexp", il)
        gate = self.cb(self.build_mm(layer.ffn_gate_inp_shexp, cur), "shared_expert_gate", il)
        gate = self.cb(sigmoid(gate), "shared_expert_gate_sigmoid", il)  # [1, n_tokens]
        return add(moe, self.cb(mul(shexp, gate), "ffn_shexp_gated", il))


class Qwen35MoeDraft(NextNGraph, Qwen35MoeGraph):
    model: Qwen35Moe

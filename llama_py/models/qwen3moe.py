"""Qwen3 with mixture of experts: the dense model's attention (models/qwen3moe.cpp)."""

from __future__ import annotations

from ggml_py.tensor import Tensor
from llama_py.hparams import Keys
from llama_py.inputs import GraphParams
from llama_py.models.qwen3 import Qwen3, Qwen3Graph, Qwen3HParams
from llama_py.weights import LayerLoader


class Qwen3MoeHParams(Qwen3HParams):
    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.load_expert_sizes(keys)


class Qwen3Moe(Qwen3):
    arch = "qwen3moe"
    hparams_class = Qwen3MoeHParams
    hparams: Qwen3MoeHParams

    def load_feed_forward(self, t: LayerLoader, il: int) -> None:
        hp, n_embd, n_expert = self.hparams, self.hparams.n_embd, self.hparams.n_expert
        t.norm("ffn_norm", n_embd)
        t.matrix("ffn_gate_inp", n_embd, n_expert)
        t.matrix("ffn_gate_exps", n_embd, hp.n_ff_exp, n_expert)
        t.matrix("ffn_down_exps", hp.n_ff_exp, n_embd, n_expert)
        t.matrix("ffn_up_exps", n_embd, hp.n_ff_exp, n_expert)

    def graph(self, params: GraphParams) -> Qwen3MoeGraph:
        return Qwen3MoeGraph(self, params)


class Qwen3MoeGraph(Qwen3Graph):
    def feed_forward(self, cur: Tensor, il: int) -> Tensor:
        return self.build_moe_ffn(cur, self.model.layers[il], il)

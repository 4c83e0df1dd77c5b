"""The hybrid decoders' feed-forward with experts: the chosen ones, and a shared one with a gate
(models/qwen35moe.cpp and qwen3next.cpp)."""

from __future__ import annotations

from ggml_py.ops import add, mul, sigmoid
from ggml_py.tensor import Tensor
from llama_py.hparams import Keys
from llama_py.models._hybrid import HybridGraph, HybridHParams, HybridModel
from llama_py.weights import LayerLoader


class HybridMoeHParams(HybridHParams):
    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.load_expert_sizes(keys)


class HybridMoeModel(HybridModel):
    hparams: HybridMoeHParams

    def load_feed_forward(self, t: LayerLoader, il: int) -> None:
        hp, n_embd, n_expert = self.hparams, self.hparams.n_embd, self.hparams.n_expert
        t.matrix("ffn_gate_inp", n_embd, n_expert)
        t.matrix("ffn_down_exps", hp.n_ff_exp, n_embd, n_expert)
        t.gate_up_exps(n_embd, hp.n_ff_exp, n_expert)
        t.matrix("ffn_gate_inp_shexp", n_embd)
        t.gated_ffn(n_embd, hp.n_ff_shexp, "_shexp")


class HybridMoeGraph(HybridGraph):
    model: HybridMoeModel
    layer_sum = "post_moe"

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

"""Mellum: Qwen3's attention and experts, in most layers sliding-window attention with unscaled RoPE
(models/mellum.cpp)."""

from __future__ import annotations

from llama_py.blocks.experts import GATING_FUNCS, Experts, Routing, Weighing
from llama_py.gguf.keys import Keys, flag, uint
from llama_py.models.qwen3moe import Qwen3Moe, Qwen3MoeHParams
from llama_py.models.trunks.decoder import Block
from llama_py.models.trunks.unscaled_windows import UnscaledWindows
from llama_py.weights import Weights


class MellumHParams(Qwen3MoeHParams, UnscaledWindows):
    whole_rope = True
    expert_gating_func: int = uint("expert_gating_func", 1, most=len(GATING_FUNCS))
    expert_weights_norm: bool = flag("expert_weights_norm", True)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        if self.expert_gating_func == 0:  # saved by a llama.cpp that did not read these keys
            self.expert_gating_func, self.expert_weights_norm = 1, True


class Mellum(Qwen3Moe):
    arch = "mellum"
    HParams = MellumHParams
    hp: MellumHParams
    sizes = {28: "12B.A2.5B"}
    layer_sum = "ffn_out"

    def feed_forward(self, w: Weights, il: int) -> Block:
        hp = self.hp
        return Experts(
            w,
            hp,
            hp.n_ff_exp[il],
            routing=Routing(GATING_FUNCS[hp.expert_gating_func - 1]),
            weighing=Weighing(hp.expert_weights_norm),
        )

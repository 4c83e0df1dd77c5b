"""Mellum: Qwen3's attention and experts, and in most layers a window of tokens, where positions are
not scaled (models/mellum.cpp)."""

from __future__ import annotations

from dataclasses import replace

from llama_py.geometry import Rope
from llama_py.hparams import WindowedHParams
from llama_py.keys import Keys
from llama_py.models.qwen3moe import Qwen3Moe, Qwen3MoeHParams


class MellumHParams(Qwen3MoeHParams, WindowedHParams):
    whole_rope = True
    n_pattern = 4

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.rope_freq_base_swa = self.rope_freq_base_train  # no graph reads the file's

    def rope(self, il: int) -> Rope | None:
        rope = super().rope(il)
        return replace(rope, yarn=False) if rope and self.swa_layers[il] else rope


class Mellum(Qwen3Moe):
    arch = "mellum"
    HParams = MellumHParams
    hp: MellumHParams
    sizes = {28: "12B.A2.5B"}
    layer_sum = "ffn_out"

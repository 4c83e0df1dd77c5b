"""Mellum: Qwen3's attention and experts, in most layers sliding-window attention with unscaled RoPE
(models/mellum.cpp)."""

from __future__ import annotations

from llama_py.models.qwen3moe import Qwen3Moe, Qwen3MoeHParams
from llama_py.models.trunks.unscaled_windows import UnscaledWindows


class MellumHParams(Qwen3MoeHParams, UnscaledWindows):
    whole_rope = True


class Mellum(Qwen3Moe):
    arch = "mellum"
    HParams = MellumHParams
    hp: MellumHParams
    sizes = {28: "12B.A2.5B"}
    layer_sum = "ffn_out"

"""Checkpoints of OLMo, OLMoE and Seed-OSS (conversion/olmo.py)."""

from __future__ import annotations

from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.models.llama import RotatedConverter
from llama_py.checkpoint.models.qwen2moe import Qwen2MoeConverter
from llama_py.checkpoint.names import ATTENTION, FEED_FORWARD, HEAD_NORMS, MODEL, POST_NORMS
from llama_py.checkpoint.shared_keys import WINDOWS

EPS = 1e-5
SWA_PERIOD = 4  # each fourth layer attends to all tokens


class OlmoConverter(RotatedConverter):
    arch = "olmo"
    classes = ("OlmoForCausalLM", "OLMoForCausalLM")
    own_keys = (("attention.clamp_kqv", "f32", ("clip_qkv",)),)

    def keys(self) -> None:
        super().keys()
        self.out.f32("attention.layer_norm_epsilon", EPS)


class Olmo2Converter(Converter):
    arch = "olmo2"
    classes = ("Olmo2ForCausalLM", "Olmo3ForCausalLM")
    names = MODEL
    layers = {**ATTENTION, **HEAD_NORMS, **FEED_FORWARD, **POST_NORMS}

    def keys(self) -> None:
        super().keys()
        if self.find("sliding_window") is None:
            return
        sliding = ("full_attention" if i % SWA_PERIOD == 0 else "sliding_attention"
                   for i in range(1, self.n_layer + 1))  # fmt: skip
        self.config.setdefault("layer_types", [*sliding])
        self.copy(*WINDOWS)


class OlmoeConverter(Qwen2MoeConverter):
    arch = "olmoe"
    classes = ("OlmoeForCausalLM",)
    layers = HEAD_NORMS

    def keys(self) -> None:
        super().keys()
        self.out.f32("attention.layer_norm_rms_epsilon", EPS)


class SeedOssConverter(Converter):
    arch = "seed_oss"
    classes = ("SeedOssForCausalLM",)
    layers = POST_NORMS

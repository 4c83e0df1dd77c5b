"""Checkpoints of Mistral Small 3 and Ministral 3 (conversion/mistral3.py)."""

from __future__ import annotations

from ggml_py.errors import ModelError
from llama_py.checkpoint.models.llama import LlamaConverter


class Ministral3Converter(LlamaConverter):
    arch = "mistral3"
    classes = ("Mistral3ForConditionalGeneration", "Ministral3ForCausalLM")

    def keys(self) -> None:
        super().keys()
        if self.find("model_type") != "ministral3":
            return
        rope = self.rope
        if rope.get("rope_type") != "yarn":
            raise ModelError(f"rope_type must be yarn, got {rope.get('rope_type')}")
        for key, name in (
            ("rope.scaling.yarn_log_multiplier", "mscale_all_dim"),
            ("attention.temperature_scale", "llama_4_scaling_beta"),
        ):
            if name not in rope:
                raise ModelError(f"rope_parameters lacks {name}")
            self.out.f32(key, rope[name])

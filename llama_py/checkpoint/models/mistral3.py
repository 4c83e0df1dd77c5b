"""Checkpoints of Mistral Small 3 and 4, and Ministral 3 (conversion/mistral3.py)."""

from __future__ import annotations

from ggml_py.errors import ModelError
from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.models.deepseek import DeepseekV2Converter
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
                raise ModelError(f"rope_parameters lacks {name}; download config.json again")
            self.out.f32(key, rope[name])


class Mistral4Converter(DeepseekV2Converter):
    """Gate and up matrices of experts remain one tensor."""

    arch = "mistral4"
    classes = ("Mistral4ForCausalLM",)
    layers = {"mlp.experts.gate_up_proj": "ffn_gate_up_exps"}

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if name.endswith("mlp.experts.gate_up_proj"):
            yield self.rename(f"{name}.weight"), array
        else:
            yield from super().tensors(name, array, layer)

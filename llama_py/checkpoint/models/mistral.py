"""Checkpoints in Mistral's format: params.json, consolidated*.safetensors and tekken.json or
tokenizer.model.vN (conversion/mistral.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ggml_py.errors import ModelError
from llama_py.checkpoint.converter import Converter, ConvertOptions
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.models.deepseek import DeepseekV2Converter
from llama_py.checkpoint.models.llama import LlamaConverter
from llama_py.checkpoint.names import name_layers, pairs
from llama_py.checkpoint.vocabulary import Vocabulary
from llama_py.checkpoint.vocabulary_mistral import write_mistral

NAMES = pairs("""
    tok_embeddings=token_embd norm=output_norm output=output
    layers.{}: attention_norm=attn_norm ffn_norm=ffn_norm attention.wq=attn_q
        attention.wk=attn_k attention.wv=attn_v attention.wo=attn_output
        feed_forward.w1=ffn_gate feed_forward.w2=ffn_down feed_forward.w3=ffn_up
""")
EXPERTS = name_layers("layers.{}", {
    "gate": "ffn_gate_inp",
    **{f"attention.w{part}": f"attn_{part}" for part in ("q_a", "q_b")},
    "attention.q_a_norm": "attn_q_a_norm",
    "attention.wkv_a_with_mqa": "attn_kv_a_mqa",
    "attention.kv_a_norm": "attn_kv_a_norm",
    "attention.k_b_proj": "attn_k_b",
    "attention.v_b_proj": "attn_v_b",
    **{f"{module}.w{i}": f"ffn_{part}_{kind}"
       for module, kind in (("experts", "exps"), ("shared_experts", "shexp"))
       for i, part in ((1, "gate"), (2, "down"), (3, "up"))},
})  # fmt: skip
CONTEXT = "original_max_position_embeddings"
LONGEST = 128_000  # context of a model with experts, without another
# Values of the object `moe`, by their names in config.json
MOE = pairs("""
    first_k_dense_replace=first_k_dense_replace num_experts_per_tok=num_experts_per_tok
    n_routed_experts=num_experts moe_intermediate_size=expert_hidden_dim
    routed_scaling_factor=routed_scale n_shared_experts=num_shared_experts n_group=num_expert_groups
    topk_group=num_expert_groups_per_tok
""")
FP8 = "fp8_e4m3"


class ParamsConverter(Converter):
    """A model of params.json."""

    def __init__(self, folder: CheckpointFolder, options: ConvertOptions) -> None:
        super().__init__(folder, options)
        if (quantization := self.find("quantization")) is None:
            return
        if not isinstance(quantization, dict) or quantization.get("qformat_weight") != FP8:
            raise ModelError(
                f"{folder.path / 'params.json'}: quantized weights must be {FP8}; use the model's "
                "folder with config.json and model*.safetensors"
            )
        self.config["quantization_config"] = {"quant_method": "fp8"}

    def keys(self) -> None:
        super().keys()
        out, yarn = self.out, self.find("yarn")
        if yarn is not None:
            out.text("rope.scaling.type", "yarn")
            out.f32("rope.scaling.factor", self.value(yarn, "factor"))
            out.f32("rope.scaling.yarn_beta_fast", self.value(yarn, "beta"))
            out.f32("rope.scaling.yarn_beta_slow", self.value(yarn, "alpha"))
            log_multiplier = 0.0 if self.value(yarn, "apply_scale") else 1.0
            out.f32("rope.scaling.yarn_log_multiplier", log_multiplier)
            out.u32("rope.scaling.original_context_length", self.value(yarn, CONTEXT))
        if (scaling := self.find("llama_4_scaling")) is not None:
            out.f32("attention.temperature_scale", self.value(scaling, "beta"))

    def value(self, found: Mapping[str, float], name: str) -> float:
        """Return a value of an object in params.json. Raises ModelError if it is missing."""
        if not isinstance(found, dict) or name not in found:
            raise ModelError(
                f"{self.folder.path / 'params.json'}: {name} is missing; download it again"
            )
        return float(found[name]) if name != CONTEXT else found[name]

    def vocabulary(self, v: Vocabulary) -> None:
        write_mistral(v)


class MistralConverter(ParamsConverter, LlamaConverter):
    """A model without scaled queries has the architecture of Llama."""

    arch = "llama"
    classes: ClassVar[tuple[str, ...]] = ("params.json",)
    names = NAMES
    permutes = False

    def keys(self) -> None:
        self.config.setdefault("vocab_size", 0)
        super().keys()
        self.out.stored.pop(f"{self.out.arch}.vocab_size", None)  # follows the tokens


class ScaledMistralConverter(MistralConverter):
    arch = "mistral3"
    classes = ("params.json: llama_4_scaling",)


class MistralMoeConverter(ParamsConverter, DeepseekV2Converter):
    """A model with experts has the architecture of DeepSeek-V2, and scaled queries."""

    classes = ("params.json: moe",)
    names = {**NAMES, **EXPERTS}
    parts = ("w2", "w1", "w3")

    def __init__(self, folder: CheckpointFolder, options: ConvertOptions) -> None:
        moe = folder.config.get("moe")
        super().__init__(folder, options)
        for name, stored in MOE.items():
            if isinstance(moe, dict) and stored in moe:
                self.config[name] = moe[stored]
        self.config |= {"norm_topk_prob": True, "scoring_func": "softmax"}
        self.config["rms_norm_eps"] = self.find("norm_eps")
        self.config.setdefault("max_position_embeddings", LONGEST)
        self.config["num_hidden_layers"] = self.n_layer
        if (heads := self.find("n_heads")) is not None:
            self.config["num_key_value_heads"] = self.config.pop("n_kv_heads", heads)

    def select(self, name: str) -> str | None:
        return super().select(name.replace(".wkv_b.", ".kv_b_proj."))

    def keys(self) -> None:
        super().keys()
        yarn = self.find("yarn")
        self.out.u32("attention.temperature_length", self.value(yarn, CONTEXT))
        self.out.f32("rope.scaling.yarn_log_multiplier", 0.1)

"""Checkpoints of Ling 3 (Bailing MoE 3): delta attention and latent attention
(conversion/bailingmoe3.py)."""

from __future__ import annotations

from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.experts import NextnConverter
from llama_py.checkpoint.models.bailingmoe import EMBEDDINGS
from llama_py.checkpoint.models.kimi_linear import DeltaConverter
from llama_py.checkpoint.names import (
    ATTENTION,
    DELTA_ATTENTION,
    LATENT,
    LLAMA,
    NEXTN,
    ROUTED_EXPERTS,
)
from llama_py.checkpoint.shared_keys import (
    DENSE_LAYERS,
    EXPERT_NORM,
    EXPERT_SCALE,
    EXPERT_SIZE,
    KEY_RANK,
    QUERY_RANK,
    ROTARY_SIZE,
    SHARED_SIZE,
    VOCAB_SIZE,
)
from llama_py.checkpoint.values import decay

ATTENTION_NAMES = {
    module.replace("self_attn.", "attention."): tensor
    for module, tensor in {**ATTENTION, **LATENT, **DELTA_ATTENTION}.items()
}
LIMITS = (
    ("swiglu_clamp_exp", "expert_swiglu_limit_list"),
    ("swiglu_clamp_shexp", "share_expert_swiglu_limit_list"),
)
# Variants that llama.cpp has: names in config.json and their values
VARIANT = {
    "no_kda_lora": True,
    "kda_safe_gate": True,
    "gated_attention_proj_granularity_type": "head_wise",
}


class BailingMoeV3Converter(DeltaConverter, NextnConverter):
    arch = "bailingmoe3"
    classes = ("BailingMoeV3ForCausalLM",)
    names = {**LLAMA, **EMBEDDINGS}
    layers = {
        **ROUTED_EXPERTS,
        **ATTENTION_NAMES,
        **NEXTN,
        "attention.dense": "attn_output",
        "mlp.gate.expert_bias": "exp_probs_b",
        "final_layernorm": "layer_output_norm",
    }
    suffixes = {".expert_bias": ".bias"}

    def is_full(self, layer: int) -> bool:
        n, size = self.integer("num_hidden_layers"), max(self.integer("layer_group_size"), 1)
        return layer >= n // size * size or (layer + 1) % size == 0

    def kv_sizes(self, layer: int | None) -> tuple[int, int, int]:
        n_key, n_value = self.integer("qk_nope_head_dim"), self.integer("v_head_dim")
        return self.integer("num_attention_heads"), n_key, n_value

    def decays(self, array: LazyArray) -> LazyArray:
        return array.map(lambda x: -decay(x)).reshape(-1, 1)

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        is_full = layer is not None and self.is_full(layer)
        if name.endswith(".attention.f_proj.weight") and not is_full:
            yield f"blk.{layer}.ssm_f_a.weight", array
        elif name.endswith(".attention.g_proj.weight"):
            yield f"blk.{layer}.{'attn_gate' if is_full else 'ssm_g_a'}.weight", array
        else:
            yield from super().tensors(name, array, layer)

    def keys(self) -> None:
        for name, value in VARIANT.items():
            if self.config.get(name) != value:
                raise self.refuse((name,), repr(value))
        self.config["num_key_value_heads"] = 1
        super().keys()
        out = self.out
        kinds = [int(self.is_full(i)) for i in range(self.n_layer)]
        out.array("attention.head_count_kv", kinds)
        self.copy(
            VOCAB_SIZE,
            ("ssm.conv_kernel", "u32!", ("short_conv_kernel_size",)),
            ("kda.head_dim", "u32!", ("head_dim",)),
            ("kda.safe_gate", "bool!", ("kda_safe_gate",)),
            ("kda.gate_lower_bound", "f32!", ("kda_lower_bound",)),
            *(QUERY_RANK, KEY_RANK, ROTARY_SIZE),
        )
        self.latent_keys(has_values=False)
        self.copy(EXPERT_SIZE, SHARED_SIZE)
        out.u32("expert_shared_count", self.config.get("num_shared_experts", 1))
        self.copy(DENSE_LAYERS, EXPERT_SCALE, EXPERT_NORM)
        for key, name in LIMITS:
            if (limits := self.find(name)) is not None:
                out.array(key, pad_limits(limits, self.n_layer))
        self.draft_key()


def pad_limits(limits: list[float | None], n: int) -> list[float]:
    """Return a limit for each of n layers; 0 means no limit."""
    return [float(x or 0.0) for x in limits[:n]] + [0.0] * (n - len(limits))


class BailingMoeV3VLConverter(BailingMoeV3Converter):
    classes = ("BailingMoeV3VLForConditionalGeneration",)
    skipped = ("linear_proj",)

    def keys(self) -> None:
        super().keys()
        sections, n_rot = self.find("mrope_section"), self.integer("qk_rope_head_dim")
        if not isinstance(sections, list) or 2 * sum(sections[:3]) != n_rot:
            raise self.refuse(("mrope_section",), f"three numbers with the sum {n_rot // 2}")
        self.out.array("rope.dimension_sections", [*sections[:3], 0])

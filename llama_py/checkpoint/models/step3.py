"""Checkpoints of Step-3.5 and 3.7, and the text model of Step3-VL (conversion/step3.py)."""

from __future__ import annotations

from typing import Any

import numpy as np

from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.experts import NextnConverter
from llama_py.checkpoint.models.qwen3 import Qwen3Converter
from llama_py.checkpoint.names import HEAD_NORMS, NEXTN
from llama_py.checkpoint.rotary import llama3_factors
from llama_py.checkpoint.shared_keys import EXPERT_SIZE

WINDOW, FULL = "sliding_attention", "full_attention"
PARTS = ("gate", "up", "down")
EXPERTS = {
    "moe.gate": "ffn_gate_inp",
    "moe.router_bias": "exp_probs_b",
    "self_attn.g_proj": "attn_gate",
    **{f"moe.{part}_proj": f"ffn_{part}_exps" for part in PARTS},
    **{f"share_expert.{part}_proj": f"ffn_{part}_shexp" for part in PARTS},
}
SQUEEZED = (
    ".self_attn.g_proj.weight", ".moe.gate.weight", ".moe.up_proj.weight",
    ".moe.gate_proj.weight", ".moe.down_proj.weight",
)  # fmt: skip
LIMITS = (("swiglu_clamp_exp", "swiglu_limits"), ("swiglu_clamp_shexp", "swiglu_limits_shared"))


class Step3VLConverter(Qwen3Converter):
    classes = ("StepVLForConditionalGeneration",)


class Step35Converter(NextnConverter):
    arch = "step35"
    classes = ("Step3p5ForCausalLM", "Step3p7ForConditionalGeneration")
    layers = {**EXPERTS, **HEAD_NORMS, **NEXTN}
    suffixes = {".moe.router_bias": ".bias"}
    adds_one = ("norm.weight",)

    def _rope(self) -> dict[str, Any]:
        thetas = self.config.get("rope_theta")
        if isinstance(thetas, list) and len(thetas) > 1:  # of all tokens, and of windows
            self.config["rope_theta"], self.config["local_rope_theta"] = map(float, thetas[:2])
        rope = super()._rope()
        if isinstance(thetas, list):
            rope["rope_theta"] = self.config["rope_theta"]
            rope["sliding_attention"] = {"rope_theta": self.config.get("local_rope_theta")}
        return rope

    def place(self, name: str) -> str:
        return name.replace(".transformer.", ".").replace("shared_head.output", "shared_head.head")

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if name.endswith(SQUEEZED):
            array = array.squeeze()
        yield from super().tensors(name, array, layer)

    def extra(self) -> NamedArrays:
        if str(self.full_rope.get("rope_type")).lower() != "llama3":
            return
        parts = self.find("partial_rotary_factors") or []
        part = next((p for t, p in zip(self._types(), parts, strict=False) if t == FULL), 0.5)
        n_rot = int(self.head_dim * part)
        factors = llama3_factors(self.full_rope, n_rot, kind=np.float64)
        others = np.ones(self.head_dim // 2 - len(factors), np.float32)
        yield "rope_freqs.weight", LazyArray.from_values(np.concatenate([factors, others]))

    def _types(self) -> list[str]:
        """Return the kind of each layer; config.json may lack drafting layers."""
        types = self.find("layer_types") or []
        return [*types, *[FULL] * self.n_layer][: self.n_layer]

    def keys(self) -> None:
        super().keys()
        out, types = self.out, self._types()
        other = self.find("attention_other_setting") or {}
        for key, name in (
            ("attention.head_count", "num_attention_heads"),
            ("attention.head_count_kv", "num_attention_groups"),
        ):
            heads = self.integer(name)
            out.array(key, [other.get(name, heads) if t == WINDOW else heads for t in types])
        out.u32("attention.sliding_window", self.integer("sliding_window"))
        out.array("attention.sliding_window_pattern", [t == WINDOW for t in types])
        out.u32("attention.value_length", self.integer("head_dim"))
        self.copy(
            ("expert_count", "u32!", ("moe_num_experts",)),
            ("expert_used_count", "u32!", ("moe_top_k",)),
            EXPERT_SIZE,
            ("expert_shared_feed_forward_length", "u32!", ("share_expert_dim",)),
            ("expert_weights_scale", "f32", ("moe_router_scaling_factor",)),
            ("expert_weights_norm", "bool", ("norm_expert_weight",)),
        )
        listed = str(self.find("moe_layers_enum") or "").split(",")
        sparse = [int(i) for i in listed if i.strip().isdecimal()]
        out.u32("leading_dense_block_count", min(sparse, default=0))
        out.u32("moe_every_n_layers", int(self.config.get("moe_every_n_layer", 1)))
        epsilon = self.config.get("rms_norm_eps", 1e-5)
        out.f32("attention.layer_norm_rms_epsilon", epsilon)
        for key, name in LIMITS:
            if (limits := self.find(name)) is not None:
                each = [float(x or 0.0) for x in limits] + [0.0] * self.n_layer
                out.array(key, each[: self.n_layer])
        self.draft_key()

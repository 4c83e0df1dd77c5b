"""Checkpoints of GroveMoE (conversion/grovemoe.py)."""

from __future__ import annotations

from functools import cached_property

from llama_py.checkpoint.merge import ExpertMerger
from llama_py.checkpoint.models.qwen3moe import Qwen3MoeConverter

# Numbers of the model's program that config.json lacks
PER_GROUP = 2
GROUP_SCALE = 0.05
N_FF_CHUNK = 128


class GroveMoeConverter(Qwen3MoeConverter):
    """Groups of experts share chunks, which are small experts."""

    arch = "grovemoe"
    classes = ("GroveMoeForCausalLM", "modeling_grove_moe.GroveMoeForCausalLM")
    layers = {
        "mlp.chunk_experts.gate_proj": "ffn_gate_chexps",
        "mlp.chunk_experts.up_proj": "ffn_up_chexps",
        "mlp.chunk_experts.down_proj": "ffn_down_chexps",
    }

    def select(self, name: str) -> str | None:
        return None if name.endswith(".expert_bias") else super().select(name)

    def keys(self) -> None:
        super().keys()
        self.out.u32("expert_chunk_feed_forward_length", self.find("head_dim") or N_FF_CHUNK)
        self.out.u32("experts_per_group", PER_GROUP)
        self.out.f32("expert_group_scale", GROUP_SCALE)

    @cached_property
    def mergers(self) -> list[ExpertMerger]:
        n = self.experts.n_experts // PER_GROUP
        return [self.experts, ExpertMerger(n, self.parts, "chunk_experts")]

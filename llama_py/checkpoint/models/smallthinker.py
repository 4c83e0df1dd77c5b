"""Checkpoints of SmallThinker (conversion/smallthinker.py)."""

from __future__ import annotations

from functools import cached_property

from llama_py.checkpoint.experts import ExpertsConverter
from llama_py.checkpoint.merge import ExpertMerger
from llama_py.checkpoint.names import LAYERS, LLAMA, name_layers


class SmallThinkerConverter(ExpertsConverter):
    arch = "smallthinker"
    classes = ("SmallThinkerForCausalLM",)
    names = {
        **LLAMA,
        **name_layers(LAYERS, {
            "block_sparse_moe.primary_router": "ffn_gate_inp",
            "block_sparse_moe.up": "ffn_up",
            "block_sparse_moe.down": "ffn_down",
            "block_sparse_moe.experts.gate": "ffn_gate_exps",
            "block_sparse_moe.experts.up": "ffn_up_exps",
            "block_sparse_moe.experts.down": "ffn_down_exps",
        }),
    }  # fmt: skip
    parts = ("down", "gate", "up")

    @cached_property
    def experts(self) -> ExpertMerger:
        names = ("moe_num_primary_experts", "num_local_experts", "num_experts")
        return ExpertMerger(self.find(*names) or 0, self.parts)

    def keys(self) -> None:
        super().keys()
        self.copy((
            ("expert_count", "u32", ("moe_num_primary_experts",)),
            ("expert_used_count", "u32", ("moe_num_active_primary_experts",)),
            ("expert_feed_forward_length", "u32", ("moe_ffn_hidden_size",)),
            ("feed_forward_length", "u32", ("moe_ffn_hidden_size",)),
        ))  # fmt: skip
        is_softmax = self.find("moe_primary_router_apply_softmax")
        self.set_gating("softmax" if is_softmax else "sigmoid")
        if any(self.find("sliding_window_layout") or ()) and self.find("sliding_window_size"):
            self.out.u32("attention.sliding_window", self.integer("sliding_window_size"))

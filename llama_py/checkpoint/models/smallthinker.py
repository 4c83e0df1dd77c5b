"""Checkpoints of SmallThinker (conversion/smallthinker.py)."""

from __future__ import annotations

from llama_py.checkpoint.experts import ExpertsConverter
from llama_py.checkpoint.names import pairs


class SmallThinkerConverter(ExpertsConverter):
    arch = "smallthinker"
    classes = ("SmallThinkerForCausalLM",)
    layers = pairs("""
        block_sparse_moe.primary_router=ffn_gate_inp block_sparse_moe.up=ffn_up
        block_sparse_moe.down=ffn_down block_sparse_moe.experts.gate=ffn_gate_exps
        block_sparse_moe.experts.up=ffn_up_exps block_sparse_moe.experts.down=ffn_down_exps
    """)
    parts = ("down", "gate", "up")

    def keys(self) -> None:
        super().keys()
        self.copy(
            ("expert_count", "u32", ("moe_num_primary_experts",)),
            ("expert_used_count", "u32", ("moe_num_active_primary_experts",)),
            ("expert_feed_forward_length", "u32", ("moe_ffn_hidden_size",)),
            ("feed_forward_length", "u32", ("moe_ffn_hidden_size",)),
        )
        is_softmax = self.find("moe_primary_router_apply_softmax")
        self.set_gating("softmax" if is_softmax else "sigmoid")
        if any(self.find("sliding_window_layout") or ()) and self.find("sliding_window_size"):
            self.out.u32("attention.sliding_window", self.integer("sliding_window_size"))

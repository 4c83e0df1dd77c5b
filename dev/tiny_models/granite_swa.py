"""Tiny models of Granite with windows."""

from dev.tiny_models import WIDE, Tiny
from dev.tiny_models.granite import SCALES

DENSE = {
    **WIDE,
    **SCALES,
    "block_count": 3,
    "attention.sliding_window": 12,
    "attention.sliding_window_pattern": [True, False, True],
}

TINY = {
    "dense": Tiny(keys={**DENSE, "attention.rope_pattern": [True, True, False]}, familiar=True),
    "moe": Tiny(
        keys={
            **DENSE,
            "expert_count": 5,
            "expert_used_count": 2,
            "expert_shared_feed_forward_length": 64,
        },
        without=["*.bias", "output.weight"],
        keep=["*.ffn_gate_up_exps.weight"],
        gain={"token_embd.weight": 0.2},
        familiar=True,
    ),
}

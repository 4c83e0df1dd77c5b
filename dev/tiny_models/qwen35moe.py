"""Tiny models of Qwen3.5 with mixture of experts."""

from dev.tiny_models import Tiny
from dev.tiny_models.qwen35 import DENSE, DRAFTS, GAIN

EXPERTS = {
    "expert_count": 6,
    "expert_used_count": 3,
    "expert_feed_forward_length": 48,
    "expert_shared_feed_forward_length": 80,
}

TINY = {
    "moe": Tiny(keys={**DENSE, **EXPERTS}, gain=GAIN, prompt=72),
    "mtp": Tiny(
        keys={**DRAFTS, **EXPERTS},
        without=["*.bias", "*.scale", "*.nextn.shared_head_*"],
        keep=["*.ffn_gate_up_exps.weight"],
        gain=GAIN,
    ),
}

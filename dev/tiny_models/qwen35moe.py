"""Tiny models of Qwen3.5 with mixture of experts."""

from dev.tiny_models import Tiny
from dev.tiny_models._hadamard import ATTENTION, DELTA_NET, folded_keys
from dev.tiny_models.qwen35 import DENSE, DRAFTS, GAIN

EXPERTS = {
    "expert_count": 6,
    "expert_used_count": 3,
    "expert_feed_forward_length": 48,
    "expert_shared_feed_forward_length": 80,
}

SHARED = ("ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp")
FUSED = ("ffn_gate_up_exps", "ffn_down_exps", *SHARED)

TINY = {
    "moe": Tiny(keys={**DENSE, **EXPERTS}, gain=GAIN, prompt=72),
    "hadamard": Tiny(
        keys={
            **DENSE,
            **EXPERTS,
            **folded_keys(
                [[*DELTA_NET, *FUSED], [*ATTENTION, *FUSED]], [48, 64, 80, 128], gdn_v_grouped=True
            ),
        },
        keep=["*.ffn_gate_up_exps.weight"],
        gain=GAIN,
        familiar=True,
        newest=True,
    ),
    "mtp": Tiny(
        keys={**DRAFTS, **EXPERTS},
        without=["*.bias", "*.scale", "*.nextn.shared_head_*"],
        keep=["*.ffn_gate_up_exps.weight"],
        gain=GAIN,
    ),
}

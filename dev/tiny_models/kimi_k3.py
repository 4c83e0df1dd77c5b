"""Tiny models of Kimi K3."""

from dev.tiny_models import Tiny
from dev.tiny_models.kimi_linear import TINY as LINEAR

TINY = {
    "moe": Tiny(
        keys={
            **LINEAR["moe"].keys,
            "attention.q_lora_rank": 24,
            "expert_latent_length": 40,
            "kda.gate_lower_bound": -5.0,
            "attn_res.block_size": 2,
            "activation.situ_beta": 4.0,
            "activation.situ_linear_beta": 25.0,
        },
        without=["*.attn_q.weight", "*.attn_[qkv].bias"],
        gain={"*_res_score.*": 2},
        prompt=72,
    )
}

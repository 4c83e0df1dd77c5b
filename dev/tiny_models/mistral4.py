"""Tiny models of Mistral 4."""

from dev.tiny_models import Tiny
from dev.tiny_models.deepseek2 import LATENT, YARN

TINY = {
    "moe": Tiny(
        keys={
            "block_count": 2,
            **LATENT,
            **YARN,
            "rope.scaling.yarn_log_multiplier": 0.05,
            "attention.temperature_scale": 0.2,
            "attention.temperature_length": 12,
        },
        without=["*.attn_q.weight"],
        familiar=True,
    )
}

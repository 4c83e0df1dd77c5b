"""Tiny models of Qwen3-Next."""

from dev.tiny_models import Tiny
from dev.tiny_models.qwen35 import DENSE, DRAFTS, GAIN
from dev.tiny_models.qwen35moe import EXPERTS

TINY = {
    "moe": Tiny(
        keys={**DENSE, **EXPERTS}, without=["*.ssm_alpha.*", "*.ssm_beta.*"], gain=GAIN, prompt=72
    ),
    "mtp": Tiny(
        keys={**DRAFTS, **EXPERTS},
        without=[
            "*.bias",
            "*.scale",
            "*.ssm_alpha.*",
            "*.ssm_beta.*",
            "*.nextn.shared_head_head.*",
        ],
        gain=GAIN,
    ),
}

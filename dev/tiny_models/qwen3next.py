"""Tiny models of Qwen3-Next."""

from dev.tiny_models import Tiny
from dev.tiny_models._hadamard import ATTENTION, DELTA_NET, folded_keys
from dev.tiny_models.qwen35 import DENSE, DRAFTS, GAIN
from dev.tiny_models.qwen35moe import EXPERTS, SHARED

SEPARATE = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps", *SHARED)

TINY = {
    "moe": Tiny(
        keys={**DENSE, **EXPERTS}, without=["*.ssm_alpha.*", "*.ssm_beta.*"], gain=GAIN, prompt=72
    ),
    "hadamard": Tiny(
        keys={
            **DENSE,
            **EXPERTS,
            **folded_keys(
                [[*DELTA_NET, *SEPARATE], [*ATTENTION, *SEPARATE]],
                [48, 64, 80, 128],
                gdn_v_grouped=True,
            ),
        },
        without=["*.ssm_alpha.*", "*.ssm_beta.*"],
        gain=GAIN,
        familiar=True,
        newest=True,
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

"""Tiny models of LFM2 with mixture of experts."""

from dev.tiny_models import EXPERTS, Tiny
from dev.tiny_models.lfm2 import DENSE, GAIN

TINY = {
    "moe": Tiny(
        keys={**DENSE, **EXPERTS, "leading_dense_block_count": 1, "expert_gating_func": 2},
        without=["dense_2.*", "*.attn_?.bias"],
        gain=GAIN | {"*.ffn_down_exps.*": 2},
        familiar=True,
        pooling=("none",),
    )
}

"""Tiny models of Command R7B."""

from dev.tiny_models import SIZES, Tiny

# The second and fourth layer see more than 12 tokens, and do not know where.
TINY = {
    "dense": Tiny(
        keys={
            **SIZES,
            "block_count": 4,
            "attention.layer_norm_epsilon": 1e-5,
            "attention.sliding_window": 12,
            "attention.sliding_window_pattern": 2,
            "logit_scale": 0.3,
            "rope.freq_base": 5e4,
            "rope.freq_base_swa": 1e3,  # not used
        },
        gain={"*.attn_[qk].weight": 2},
        familiar=True,
    )
}

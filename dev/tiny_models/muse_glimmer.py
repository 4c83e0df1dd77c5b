"""Tiny models of Muse Glimmer."""

from dev.tiny_models import WIDE, Tiny

TINY = {
    "dense": Tiny(
        keys={
            **WIDE,
            "block_count": 3,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "attention.sliding_window": 12,
            "attention.sliding_window_pattern": [True, False, True],
            "rope.freq_base": 1e6,
            "rope.freq_base_swa": 5e3,
            "final_logit_softcapping": 3.0,
            "logit_scale": 1.5,
        },
        mean={"*.attn_q_norm.weight": 2},
        familiar=True,
    )
}

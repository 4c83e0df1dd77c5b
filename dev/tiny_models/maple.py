"""Tiny models of Maple."""

from dev.tiny_models import MOE, Tiny

TINY = {
    "moe": Tiny(
        keys={
            **MOE,
            "block_count": 3,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "attention.sliding_window": 12,
            "attention.sliding_window_pattern": [True, False, True],
            "rope.freq_base_swa": 5e3,
            "swiglu_clamp_exp": [0.3, 0.5, 0.0],
        },
        without=["*.bias"],
        gain={"*.ffn_gate_inp.weight": 2},
        familiar=True,
    )
}

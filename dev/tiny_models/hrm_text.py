"""Tiny models of HRM-Text."""

from dev.tiny_models import WIDE, Tiny

# One layer in either stack, and 2 * (2 + 1) turns.
TINY = {
    "turns": Tiny(
        keys={
            **WIDE,
            "block_count": 6,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "embedding_scale": 1.5,
            "hrm.layers_per_stack": 1,
            "hrm.h_cycles": 2,
            "hrm.l_cycles": 2,
        },
        without=["*.bias", "*.scale", "output.weight"],
    )
}

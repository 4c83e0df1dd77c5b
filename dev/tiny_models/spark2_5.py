"""Tiny models of Spark 2.5."""

from dev.tiny_models import WIDE, Tiny

TINY = {
    "dense": Tiny(
        keys={
            **WIDE,
            "block_count": 3,
            "attention.head_count": [4, 4, 6],
            "attention.layer_norm_rms_epsilon": 1e-6,
            "attention.sliding_window": 12,
            "attention.sliding_window_pattern": [True, False, True],
            "rope.dimension_count": 24,
            "rope.dimension_count_swa": 32,
            "rope.freq_base_swa": 5e3,
        },
        without=["*.bias"],
    )
}

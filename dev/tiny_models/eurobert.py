"""Tiny models of EuroBERT."""

from dev.tiny_models import SIZES, Tiny

TINY = {
    "dense": Tiny(
        keys={
            **SIZES,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "attention.causal": False,
            "rope.freq_base": 250000.0,
        },
        gain={"*.attn_[qk].weight": 2},
        familiar=True,
        pooling=["none", "last"],
    )
}

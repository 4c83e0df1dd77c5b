"""Tiny models of NeoBERT."""

from dev.tiny_models import CHANNELS, Tiny

TINY = {
    "dense": Tiny(
        keys={
            **CHANNELS,
            "attention.head_count": 4,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "attention.causal": False,
        },
        keep=["*.attn_qkv.weight", "cls.*"],
        gain={"*.attn_qkv.weight": 2},
        familiar=True,
        pooling=["none", "mean", "rank"],
    )
}

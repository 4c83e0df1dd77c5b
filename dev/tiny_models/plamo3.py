"""Tiny models of PLaMo 3."""

from dev.tiny_models import WIDE, Tiny

TINY = {
    "windows": Tiny(
        keys={
            **WIDE,
            "block_count": 3,
            "attention.head_count_kv": [2, 1, 2],
            "attention.value_length": 24,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "attention.sliding_window": 12,
            "attention.sliding_window_pattern": 2,
            "rope.freq_base_swa": 5e3,
        },
        without=["*.attn_qkv.scale"],
        keep=["*.attn_qkv.weight"],
        familiar=True,
    )
}

"""Tiny models of EAGLE-3, for tiny models of others."""

from dataclasses import replace

from dev.tiny_models import CHANNELS, Tiny

OWN = Tiny(
    keys={
        **CHANNELS,
        "block_count": 1,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.key_length": 32,
        "attention.value_length": 32,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "target_layers": [0, 1, 2],
        "target_hidden_size": 64,
    },
    without=("*.scale",),
    unread={"d2t": (48,), "token_embd.weight": (64, 64)},
    gain={"*.attn_[qk].weight": 2},
    drafts_for=("gpt-oss", "moe"),
)

TINY = {
    "own": OWN,
    "shared": replace(
        OWN,
        keys={
            **OWN.keys,
            "target_layers": [1, 0, 1],
            "norm_before_residual": True,
            "norm_before_fc": True,
        },
        without=("*.scale", "d2t", "token_embd.weight", "output.weight", "rope_freqs.weight"),
        unread={},
        drafts_for=("llama", "dense"),
    ),
}

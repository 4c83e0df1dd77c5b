"""Tiny models of Gemma 3n."""

from dev.tiny_models import Tiny

KEYS = {
    "block_count": 22,
    "embedding_length": 32,
    "feed_forward_length": 48,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.key_length": 16,
    "attention.value_length": 16,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "attention.sliding_window": 12,
    "attention.sliding_window_pattern": [*[True, True, True, True, False] * 4, True, False],
    "rope.freq_base": 1e6,
}
# Every fifth layer sees more than 12 tokens.
FEW = {k: v for k, v in KEYS.items() if k != "attention.sliding_window_pattern"} | {
    "block_count": 5
}
# 22 layers would make much of little differences, but for small branches.
MEAN = {
    "*.attn_[qk]_norm.weight": 0.4,
    "*.post_norm.weight": 0.3,
    "*.post_attention_norm.weight": 0.5,
    "*.post_ffw_norm.weight": 0.4,
    "*.laurel_post_norm.weight": 0.4,
}
# Routers see their input divided by its length.
GAIN = {
    "token_embd.weight": 0.6,
    "*.altup_router.weight": 8,
    "*.altup_predict_coef.*": 0.3,
    "*.altup_correct_coef.*": 0.5,
}

TINY = {
    # the last two layers attend to the caches of layers 18 and 19
    "shared": Tiny(
        keys=KEYS, without=["*.bias", "blk.2?.attn_[qkv].scale", "output.weight"], mean=MEAN,
        gain=GAIN, familiar=True,
    ),
    "few": Tiny(
        keys=FEW, without=["*.bias"], keep=["*.attn_qkv.weight"], gain=GAIN | {"*.attn_q*": 0.5}
    ),
}  # fmt: skip

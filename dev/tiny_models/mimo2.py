"""Tiny models of MiMo-V2."""

from dev.tiny_models import EXPERTS, Tiny

# Layers: dense with full attention; two with experts, a window, and more key heads; NextN with
# a window. Keys are larger than values, and RoPE rotates half of each key.
KEYS = {
    "block_count": 4,
    "nextn_predict_layers": 1,
    "embedding_length": 64,
    "feed_forward_length": 96,
    **EXPERTS,
    "attention.head_count": 4,
    "attention.head_count_kv": [1, 2, 2, 2],
    "attention.key_length": 32,
    "attention.value_length": 16,
    "attention.value_scale": 0.707,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "attention.sliding_window": 12,
    "attention.sliding_window_pattern": [False, True, True, True],
    "rope.dimension_count": 16,
    "rope.freq_base": 1e6,
    "rope.freq_base_swa": 1e4,
}

TINY = {
    # One matrix for queries, keys and values; of the NextN layer's last norm the other name.
    "mtp": Tiny(
        keys=KEYS,
        without=["blk.0.ffn_gate_inp.weight", "*.nextn.shared_head_norm.weight"],
        keep=["*.attn_qkv.weight"],
        gain={"*.ffn_gate_inp.weight": 2, "*.exp_probs_b.bias": 0.3},
    ),
    # Three matrices, no sinks; the last layer sees all.
    "plain": Tiny(
        keys={
            **{k: v for k, v in KEYS.items() if not k.startswith("nextn")},
            "block_count": 3,
            "attention.head_count_kv": [2, 2, 1],
            "attention.sliding_window_pattern": [True, True, False],
            "attention.value_scale": 1.0,
        },
        without=["*.attn_sinks.weight", "*.bias", "*.scale", "blk.2.ffn_gate_inp.weight"],
        gain={"*.ffn_gate_inp.weight": 2},
        familiar=True,
    ),
}

"""Tiny models of Step 3.5."""

from dev.tiny_models import EXPERTS, Tiny

# Layers: dense, which sees all; with a window and more heads; one more; a NextN layer with a
# window. RoPE rotates half of the dimensions with full attention, and all within a window.
KEYS = {
    "block_count": 4,
    "nextn_predict_layers": 1,
    "embedding_length": 64,
    "feed_forward_length": 96,
    **EXPERTS,
    "expert_shared_feed_forward_length": 48,
    "expert_weights_scale": 2.5,
    "expert_weights_norm": True,
    "attention.head_count": [4, 6, 4, 6],
    "attention.head_count_kv": [2, 2, 2, 2],
    "attention.key_length": 32,
    "attention.value_length": 32,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "attention.sliding_window": 12,
    "attention.sliding_window_pattern": [False, True, False, True],
    "rope.freq_base": 1e6,
    "rope.freq_base_swa": 1e4,
    "swiglu_clamp_exp": [0.0, 0.5, 0.0, 0.4],
    "swiglu_clamp_shexp": [0.4, 0.0, 0.3, 0.0],
}

TINY = {
    "mtp": Tiny(
        keys=KEYS,
        without=["blk.0.ffn_gate_inp.weight", "blk.3.ffn_gate_inp.weight"],
        gain={"*.ffn_gate_inp.weight": 2, "*.exp_probs_b.bias": 0.3},
    ),
    # One matrix for queries, keys and values; no gates and no head norms; the NextN layer has full
    # attention and experts, and uses the trunk's head and norm. No limits.
    "joint": Tiny(
        keys={
            **{k: v for k, v in KEYS.items() if not k.startswith(("swiglu", "expert_weights"))},
            "expert_gating_func": 1,
            "attention.sliding_window_pattern": [True, False, True, False],
            "rope.dimension_count": 24,
            "rope.dimension_count_swa": 16,
        },
        without=[
            "*.attn_[qk]_norm.weight",
            "*.attn_gate.weight",
            "*.bias",
            "*.scale",
            "rope_freqs.weight",
            "*.nextn.shared_*",
            "*.nextn.embed_*",
            "blk.0.ffn_gate_inp.weight",
        ],
        keep=["*.attn_qkv.weight"],
        gain={"*.ffn_gate_inp.weight": 2},
        familiar=True,
    ),
}

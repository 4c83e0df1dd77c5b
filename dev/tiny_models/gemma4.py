"""Tiny models of Gemma 4."""

from dev.tiny_models import Tiny

KEYS = {
    "embedding_length": 32,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.key_length": 24,
    "attention.value_length": 24,
    "attention.key_length_swa": 16,
    "attention.value_length_swa": 16,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "attention.sliding_window": 12,
    "rope.freq_base": 1e6,
    "rope.dimension_count_swa": 16,
    "rope.freq_base_swa": 5e3,
}

MEAN = {"*.layer_output_scale.weight": 0.9, "*.attn_[qk]_norm.weight": 0.5}
GAIN = {"token_embd.weight": 0.25, "*.layer_output_scale.weight": 0.1}

TINY = {
    # the last two layers attend to the caches of layers 1 and 2
    "shared": Tiny(
        keys={
            **KEYS,
            "block_count": 5,
            "feed_forward_length": [48, 48, 48, 96, 96],
            "attention.sliding_window_pattern": [False, True, False, True, False],
            "attention.shared_kv_layers": 2,
            "embedding_length_per_layer_input": 8,
        },
        without=["*.ffn_gate_inp.weight", "output.weight"],
        mean=MEAN,
        gain=GAIN,
    ),
    # keys are also values in layers without a window
    "moe": Tiny(
        keys={
            **KEYS,
            "block_count": 4,
            "feed_forward_length": 48,
            "expert_count": 6,
            "expert_used_count": 3,
            "expert_feed_forward_length": 24,
            "attention.head_count_kv": [2, 2, 1, 2],
            "attention.sliding_window_pattern": [True, True, False, True],
            "embedding_length_per_layer_input": 0,
            "final_logit_softcapping": 5.0,
        },
        without=["blk.2.attn_v.*", "blk.1.ffn_gate_inp.weight"],
        keep=["*.ffn_gate_inp.scale", "blk.3.ffn_gate_up_exps.weight", "blk.3.attn_qkv.*"],
        mean=MEAN,
        gain=GAIN | {"*.ffn_gate_inp.weight": 6},
    ),
}

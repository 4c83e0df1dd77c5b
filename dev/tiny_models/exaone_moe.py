"""Tiny models of K-EXAONE."""

from dev.tiny_models import MOE, Tiny

# A layer that is not run.
NEXTN = {
    "attn_norm": (64,), "attn_q": (64, 128), "attn_k": (64, 64), "attn_v": (64, 64),
    "attn_output": (128, 64), "attn_q_norm": (32,), "attn_k_norm": (32,), "ffn_norm": (64,),
    "ffn_gate": (64, 96), "ffn_up": (64, 96), "ffn_down": (96, 64), "nextn.eh_proj": (128, 64),
    "nextn.enorm": (64,), "nextn.hnorm": (64,),
}  # fmt: skip

# Layers: dense with a window, with experts and all tokens.
KEYS = {
    **MOE,
    "block_count": 3,
    "nextn_predict_layers": 1,
    "leading_dense_block_count": 1,
    "expert_shared_feed_forward_length": 80,
    "expert_gating_func": 2,
    "expert_weights_norm": True,
    "expert_weights_scale": 2.5,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "attention.sliding_window": 12,
    "attention.sliding_window_pattern": [True, False, False],
    "rope.freq_base": 1e6,
    "rope.freq_base_swa": 1e4,
}

GAIN = {"*.ffn_gate_inp.weight": 2, "*.attn_q_norm.weight": 2}
TRUNK = {k: v for k, v in KEYS.items() if not k.startswith("nextn")}

TINY = {
    "moe": Tiny(
        keys=KEYS,
        without=["rope_freqs.weight"],
        gain=GAIN,
        familiar=True,
        unread={f"blk.2.{stem}.weight": ne for stem, ne in NEXTN.items()},
    ),
    # Frequency factors, which llama.cpp cannot load together with an unused layer.
    "factors": Tiny(
        keys={**TRUNK, "block_count": 2, "attention.sliding_window_pattern": 2},
        without=["*.bias", "*.scale"],
        gain=GAIN,
        familiar=True,
    ),
}

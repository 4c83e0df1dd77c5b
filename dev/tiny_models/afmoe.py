"""Tiny models of AFMoE."""

from dev.tiny_models import MOE, Tiny

# Layers: dense, with experts; the third sees all tokens, the fourth has no RoPE.
TINY = {
    "moe": Tiny(
        keys={
            **MOE,
            "block_count": 4,
            "leading_dense_block_count": 1,
            "expert_shared_count": 2,
            "expert_weights_norm": True,
            "expert_weights_scale": 2.5,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "attention.sliding_window": 12,
            "attention.sliding_window_pattern": 3,
            "rope.dimension_count": 16,
            "rope.freq_base_swa": 1e3,
        },
        gain={"*.ffn_gate_inp.weight": 2, "token_embd.weight": 0.125},
    )
}

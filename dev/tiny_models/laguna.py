"""Tiny models of Laguna."""

from dev.tiny_models import MOE, Tiny

TINY = {
    "moe": Tiny(
        keys={
            **MOE,
            "block_count": 3,
            "attention.head_count": [4, 6, 4],
            "attention.layer_norm_rms_epsilon": 1e-6,
            "attention.sliding_window": 12,
            "attention.sliding_window_pattern": 2,
            "leading_dense_block_count": 1,
            "expert_shared_feed_forward_length": 32,
            "expert_weights_norm": True,
            "expert_weights_scale": 1.5,
            "rope.dimension_count": 16,
            "rope.dimension_count_swa": 32,
            "rope.freq_base_swa": 5e3,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 64,
        },
        without=["*.bias"],
        keep=["*.exp_probs_b.bias"],
        gain={"*.ffn_gate_inp.weight": 2},
    )
}

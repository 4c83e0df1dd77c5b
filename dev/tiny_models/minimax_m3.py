"""Tiny models of MiniMax-M3."""

from dev.tiny_models import EXPERTS, SIZES, Tiny

# Blocks of 4 positions; a token attends to 3 blocks, including its block.
TINY = {
    "moe": Tiny(
        keys={
            **SIZES,
            **EXPERTS,
            "block_count": 3,
            "leading_dense_block_count": 1,
            "expert_shared_count": 2,
            "expert_gating_func": 2,
            "expert_weights_norm": True,
            "expert_weights_scale": 2.0,
            "attention.key_length": 32,
            "attention.value_length": 32,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "rope.dimension_count": 16,
            "attention.indexer.head_count": 2,
            "attention.indexer.key_length": 32,
            "attention.indexer.top_k": 3,
            "attention.indexer.block_size": 4,
            "attention.indexer.local_blocks": 1,
        },
        gain={"*.attn_[qk].weight": 2},
    )
}

"""Tiny models of dots3-note."""

from dev.tiny_models import Tiny
from dev.tiny_models.deepseek2 import LATENT

GROUPS = ("expert_group_count", "expert_group_used_count")

# Layers: attention to selected cells (dense, then experts), to a window, to selected cells.
TINY = {
    "moe": Tiny(
        keys={
            "block_count": 3,
            **{k: v for k, v in LATENT.items() if k not in GROUPS},
            "attention.head_count": [2, 4, 2],
            "attention.layer_norm_rms_epsilon": 1e-6,
            "rope.dimension_count": 16,
            "rope.freq_base": 10000.0,
            "rope.freq_base_swa": 500.0,
            "attention.sliding_window": 9,
            "attention.sliding_window_pattern": [False, True, False],
            "attention.kv_lora_rank_swa": 24,
            "attention.key_length_swa": 40,
            "attention.value_length_swa": 24,
            "attention.key_length_mla_swa": 32,
            "attention.value_length_mla_swa": 16,
            "attention.indexer.head_count": 16,
            "attention.indexer.key_length": 64,
            "attention.indexer.top_k": 8,
            "attention.indexer.types": [True, False, True],
        },
        gain={"*.attn_q_b.weight": 2, "*.attn_k_b.weight": 2},
    )
}

"""Keys that several architectures share: their types, and their names in config.json."""

from __future__ import annotations

from collections.abc import Sequence

# A key, a type of GGUF (see Converter.copy), and names in config.json; the first present one counts
Key = tuple[str, str, tuple[str, ...]]
Keys = Sequence[Key]

VOCAB_SIZE: Key = ("vocab_size", "u32!", ("vocab_size",))
RMS_EPSILON: Key = ("attention.layer_norm_rms_epsilon", "f32!", ("rms_norm_eps",))
WINDOW: Key = ("attention.sliding_window", "u32!", ("sliding_window",))
WINDOWS: Keys = (
    ("attention.sliding_window", "u32", ("sliding_window",)),
    ("attention.sliding_window_pattern", "windows", ("layer_types",)),
)
# Experts
DENSE_LAYERS: Key = ("leading_dense_block_count", "u32!", ("first_k_dense_replace",))
EXPERT_COUNT: Key = ("expert_count", "u32!", ("n_routed_experts",))
EXPERT_SIZE: Key = ("expert_feed_forward_length", "u32!", ("moe_intermediate_size",))
SHARED_COUNT: Key = ("expert_shared_count", "u32!", ("n_shared_experts", "num_shared_experts"))
SHARED_SIZE: Key = (
    "expert_shared_feed_forward_length", "u32!", ("moe_shared_expert_intermediate_size",),
)  # fmt: skip
EXPERT_SCALE: Key = ("expert_weights_scale", "f32!", ("routed_scaling_factor",))
EXPERT_NORM: Key = ("expert_weights_norm", "bool!", ("norm_topk_prob",))
# Latent attention, and its indexer
QUERY_RANK: Key = ("attention.q_lora_rank", "u32", ("q_lora_rank",))
KEY_RANK: Key = ("attention.kv_lora_rank", "u32!", ("kv_lora_rank",))
ROTARY_SIZE: Key = ("rope.dimension_count", "u32!", ("qk_rope_head_dim",))
INDEXER_KEYS: Keys = (
    ("attention.indexer.head_count", "u32!", ("index_n_heads",)),
    ("attention.indexer.key_length", "u32!", ("index_head_dim",)),
    ("attention.indexer.top_k", "u32!", ("index_topk",)),
)
HYPER_CONNECTION: Keys = (
    ("hyper_connection.count", "u32!", ("hc_mult",)),
    ("hyper_connection.sinkhorn_iterations", "u32!", ("hc_sinkhorn_iters",)),
    ("hyper_connection.epsilon", "f32!", ("hc_eps",)),
)

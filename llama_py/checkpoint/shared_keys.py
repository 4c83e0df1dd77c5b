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

# Of all models
LAYER_COUNTS = (
    "n_layers", "num_hidden_layers", "n_layer", "num_layers", "num_transformer_layers",
)  # fmt: skip
ORIGINAL = "original_max_position_embeddings"
THETA = (
    "global_rope_theta", "rope_global_theta", "rope_theta_global", "rope_theta", "rotary_emb_base",
)  # fmt: skip
LOCAL_THETA = (
    "local_rope_theta", "rope_local_theta", "rope_theta_local", "swa_rope_theta",
    "rope_local_base_freq",
)  # fmt: skip
PARTIAL = ("partial_rotary_factor", "rope_pct", "rope_percent")
YARN = (
    ("yarn_ext_factor", ("extrapolation_factor",)),
    ("yarn_attn_factor", ("attention_factor", "attn_factor")),
    ("yarn_beta_fast", ("beta_fast",)),
    ("yarn_beta_slow", ("beta_slow",)),
)
# Keys of the architecture, their types, and their names in config.json: before RoPE and after it.
KEYS: Keys = (
    ("context_length", "u32", (
        "max_position_embeddings", "n_ctx", "n_positions", "max_length", "max_sequence_length",
        "model_max_length")),
    ("embedding_length", "u32", ("hidden_size", "n_embd", "dim")),
    ("feed_forward_length", "count", (
        "prefix_dense_intermediate_size", "dense_intermediate_size", "intermediate_size",
        "n_inner", "hidden_dim")),
    ("attention.head_count", "count", ("num_attention_heads", "n_head", "n_heads")),
    ("attention.head_count_kv", "count", ("num_key_value_heads", "n_kv_heads")),
)  # fmt: skip
LATER_KEYS: Keys = (
    ("attention.layer_norm_rms_epsilon", "f32", ("rms_norm_eps", "norm_eps")),
    ("attention.layer_norm_epsilon", "f32", (
        "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon")),
    ("expert_count", "u32", ("num_local_experts", "num_experts", "n_routed_experts")),
    ("expert_used_count", "u32", (
        "num_experts_per_tok", "num_experts_per_token", "top_k_experts")),
    ("expert_group_count", "u32", ("n_group",)),
    ("expert_group_used_count", "u32", ("topk_group",)),
)  # fmt: skip

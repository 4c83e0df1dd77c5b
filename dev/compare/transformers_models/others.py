"""Models of Llama's and Qwen's relatives."""

from __future__ import annotations

from typing import Any

SHARED = {"num_shared_experts": 1, "n_group": 1, "topk_group": 1, "norm_topk_prob": True}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
WINDOWS = ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"]
LATENT = {
    "q_lora_rank": 48,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "num_key_value_heads": 4,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
DEFAULT = {"rope_type": "default", "rope_theta": 10000.0}
BOTH = {"full_attention": DEFAULT, "sliding_attention": DEFAULT}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 16.0,
    "original_max_position_embeddings": 64,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}
DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "layer_types": ["linear_attention", "full_attention"] * 2,
}

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "olmo": ("OlmoConfig", {"clip_qkv": 8.0}),
    "olmo3": ("Olmo3Config", {"sliding_window": 64}),
    "olmoe": ("OlmoeConfig", {"num_experts": 6, "num_experts_per_tok": 2}),
    "seed-oss": ("SeedOssConfig", {"head_dim": 16}),
    "exaone-moe": (
        "ExaoneMoeConfig",
        {**EXPERTS, **SHARED, "head_dim": 16, "sliding_window": 64, "first_k_dense_replace": 1},
    ),
    "cohere": (
        "CohereConfig",
        {"logit_scale": 0.25, "use_qk_norm": True, "tie_word_embeddings": True},
    ),
    "cohere2moe": (
        "Cohere2MoeConfig",
        {"num_experts": 6, "num_experts_per_tok": 2, "head_dim": 16, "sliding_window": 64,
         "num_shared_experts": 1, "first_k_dense_replace": 1, "layer_types": WINDOWS,
         "prefix_dense_intermediate_size": 80},
    ),
    "arcee": ("ArceeConfig", {"hidden_act": "relu2"}),
    "apertus": ("ApertusConfig", {"rope_parameters": LLAMA3}),
    "llama4": (
        "Llama4TextConfig",
        {"head_dim": 16, "intermediate_size_mlp": 128, "num_local_experts": 4,
         "interleave_moe_layer_step": 2, "num_experts_per_tok": 1, "rope_parameters": LLAMA3},
    ),
    "ministral3": ("Ministral3Config", {"head_dim": 16, "rope_parameters": YARN}),
    "minicpm3": ("MiniCPM3Config", LATENT),
    "internlm3": ("InternLM3Config", {"head_dim": 16}),
    "glm": ("GlmConfig", {"head_dim": 16}),
    "afmoe": (
        "AfmoeConfig",
        {**EXPERTS, "head_dim": 16, "num_shared_experts": 1, "num_dense_layers": 1,
         "sliding_window": 64},
    ),
    "hrm": (
        "HrmTextConfig",
        {"head_dim": 16, "num_hidden_layers": 2, "H_cycles": 2, "L_cycles": 1},
    ),
    "laguna": (
        "LagunaConfig",
        {**EXPERTS, "head_dim": 16, "shared_expert_intermediate_size": 48, "sliding_window": 64,
         "layer_types": WINDOWS, "rope_parameters": BOTH},
    ),
    "mellum": (
        "MellumConfig",
        {**EXPERTS, "head_dim": 16, "sliding_window": 64, "layer_types": WINDOWS},
    ),
    "iquestcoder": ("IQuestCoderConfig", {}),
    "mistral": ("MistralConfig", {"head_dim": 16, "sliding_window": None}),
    "mixtral": ("MixtralConfig", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen2moe": ("Qwen2MoeConfig", {**EXPERTS, "shared_expert_intermediate_size": 48}),
    "llama31": ("LlamaConfig", {"rope_parameters": LLAMA3, "head_dim": 16}),
}  # fmt: skip
CONVERTER: dict[str, dict[str, Any]] = {
    "exaone-moe": {"scoring_func": "sigmoid"},
    "cohere2moe": {"num_nextn_predict_layers": 0},
    "hrm": {"architectures": ["HrmTextForCausalLM"]},
}

"""Models with experts, with latent attention, and with recurrent states."""

from __future__ import annotations

from typing import Any

ROUTED = {
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "n_group": 2,
    "topk_group": 1,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "head_dim": 16,
}
LATENT = {
    **ROUTED,
    "q_lora_rank": 48,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "num_key_value_heads": 4,
}
INDEX = {"index_n_heads": 2, "index_head_dim": 32, "index_topk": 64}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
STATES = {"mamba_n_heads": 4, "mamba_d_head": 32, "mamba_d_state": 16, "mamba_n_groups": 1}
STATE = {"state_size": 8, "intermediate_size": 128}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "deepseek2-hf": ("DeepseekV2Config", {**LATENT, "n_group": 1}),
    "deepseek32-hf": ("DeepseekV32Config", {**LATENT, **INDEX}),
    "glm4-hf": ("Glm4Config", {"head_dim": 16}),
    "glm4moe-hf": ("Glm4MoeConfig", ROUTED),
    "glm4moelite-hf": ("Glm4MoeLiteConfig", LATENT),
    "glm-dsa-hf": ("GlmMoeDsaConfig", {**LATENT, **INDEX}),
    "solar-open-hf": ("SolarOpenConfig", ROUTED),
    "dots1-hf": ("Dots1Config", ROUTED),
    "youtu-hf": ("YoutuConfig", {k: v for k, v in LATENT.items() if k not in ROUTED}),
    "ernie4_5moe-hf": (
        "Ernie4_5_MoeConfig",
        {"moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 48},
    ),
    "minimax-m2-hf": ("MiniMaxM2Config", {**EXPERTS, "head_dim": 16, "rotary_dim": 8}),
    "hy_v3-hf": (
        "HYV3Config",
        {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "head_dim": 16},
    ),
    "hunyuan-dense-hf": ("HunYuanDenseV1Config", {"head_dim": 16}),
    "mamba-hf": ("MambaConfig", STATE),
    "falcon-mamba-hf": ("FalconMambaConfig", STATE),
    "jamba-hf": (
        "JambaConfig",
        {"num_experts": 4, "attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 8},
    ),
    "bamba-hf": ("BambaConfig", {**STATES, "attn_layer_indices": [1, 3]}),
    "nemotron-hf": ("NemotronConfig", {}),
    "nemotron_h-hf": (
        "NemotronHConfig",
        {
            "layers_block_type": ["linear_attention", "moe", "full_attention", "moe"],
            "mamba_num_heads": 4, "mamba_head_dim": 32, "ssm_state_size": 16, "n_groups": 1,
            "head_dim": 16, "n_routed_experts": 4, "moe_intermediate_size": 48,
            "moe_shared_expert_intermediate_size": 48,
        },
    ),
    "lfm2moe-hf": (
        "Lfm2MoeConfig",
        {
            "layer_types": ["conv", "full_attention"] * 2, "num_experts": 4,
            "num_experts_per_tok": 2, "moe_intermediate_size": 48, "num_dense_layers": 1,
            "tie_word_embeddings": True,
        },
    ),
    "nemotron_h-dense-hf": (
        "NemotronHConfig",
        {
            "layers_block_type": ["linear_attention", "mlp", "full_attention", "mlp"],
            "mamba_num_heads": 4, "mamba_head_dim": 32, "ssm_state_size": 16, "n_groups": 1,
            "head_dim": 16,
        },
    ),
    "granite-swa-hf": ("GraniteSWAConfig", {"sliding_window": 32}),
    "granitemoe-hf": ("GraniteMoeConfig", EXPERTS),
    "granitemoe-shared-hf": ("GraniteMoeSharedConfig", {**EXPERTS, "shared_intermediate_size": 48}),
    "granitemoe-swa-hf": (
        "GraniteMoeSWAConfig", {**EXPERTS, "shared_intermediate_size": 48, "sliding_window": 32},
    ),
}  # fmt: skip
# Keys for llama.cpp's converter
SIGMOID = {"scoring_func": "sigmoid"}
CONVERTER: dict[str, dict[str, Any]] = dict.fromkeys(
    ("deepseek32-hf", "glm4moelite-hf", "glm-dsa-hf", "dots1-hf", "minimax-m2-hf"), SIGMOID
)

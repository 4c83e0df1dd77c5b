"""Tiny models of DFlash, DSpark and DFlash2, for tiny models of others."""

from dev.tiny_models import SIZES, Tiny

KEYS = {
    **SIZES,
    "attention.key_length": 32,
    "attention.value_length": 32,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "target_layers": [0, 1],
    "block_size": 8,
    "/tokenizer.ggml.mask_token_id": 1,
}
LEAN = ("markov_*", "conf_proj.*", "selector_*", "*.scale")
GAIN = {"*.attn_output.weight": 0.5}
MEAN = {"*.attn_[qk]_norm.weight": 0.5}
# The later llama.cpp computes blocks of several sequences together in a unified KV cache only.
BLOCK_RUNS = (
    "nodes-features",
    "nodes-blocks",
    "nodes-blocks-fa-off",
    "nodes-blocks-unified",
    "features",
    "blocks",
    "exact-blocks",
    "blocks-sequences",
)
LILICORR = {
    "/lilicorr.hidden_size": 24,
    "/lilicorr.candidate_topk": 4,
    "/lilicorr.num_heads": 2,
    "/lilicorr.num_layers": 2,
    "/lilicorr.factor_dim": 12,
    "/lilicorr.mlp_hidden_size": 40,
    "/lilicorr.vector_eps": 1e-3,
    "/lilicorr.logit_scale": 1.5,
}

TINY = {
    # separate embeddings, also used as head; a window; keys that are also values
    "own": Tiny(
        keys={
            **KEYS,
            "attention.sliding_window": 12,
            "attention.sliding_window_pattern": [True, False],
            "embedding_scale": 2.0,
            "attention.scale": 0.25,
            "attention.value_scale": 0.5,
            "hidden_activation": "gelu_pytorch_tanh",
        },
        without=(*LEAN, "d2t", "output.weight", "*.attn_v.*"),
        gain=GAIN | {"token_embd.weight": 0.3},
        mean=MEAN,
        drafts_for=("qwen3", "dense"),
    ),
    # the other model's embeddings and head, sections of RoPE, how sure it is
    "markov": Tiny(
        keys={**KEYS, "rope.dimension_sections": [16, 0, 0, 0]},
        without=(
            "selector_*",
            "*.scale",
            "d2t",
            "output.weight",
            "token_embd.weight",
            "rope_freqs.weight",
            "*.post_*_norm.weight",
            "*.attn_sinks.weight",
            "*.layer_output_scale.weight",
        ),
        unread={"markov_w1.weight": (16, 64)},
        gain=GAIN | {"conf_proj.weight": 3},
        mean=MEAN,
        drafts_for=("llama", "dense"),
    ),
    # a head of some tokens, and a first token without a draft
    "some": Tiny(
        keys={**KEYS, "sample_from_anchor": False, "target_layers": [1, 0, 1]},
        without=("selector_*", "conf_proj.*", "*.scale", "token_embd.weight"),
        unread={"markov_w1.weight": (16, 64), "d2t": (48,)},
        gain=GAIN,
        mean=MEAN,
        drafts_for=("llama", "dense"),
    ),
    # layers of DeepSeek-V4, and a head that depends on the token before
    "streams": Tiny(
        keys={
            **KEYS,
            "attention.head_count": 4,
            "attention.head_count_kv": 1,
            "rope.dimension_count": 16,
            "attention.q_lora_rank": 48,
            "attention.sliding_window": 12,
            "attention.output_group_count": 2,
            "attention.output_lora_rank": 24,
            "attention.compress_ratios": [0, 0],
            "expert_feed_forward_length": 48,
            "expert_count": 6,
            "expert_used_count": 3,
            "expert_shared_count": 1,
            "expert_gating_func": 4,
            "expert_weights_scale": 1.5,
            "expert_weights_norm": True,
            "swiglu_clamp_exp": [0.5, 0.0],
            "swiglu_clamp_shexp": [0.3, 0.0],
            "hyper_connection.count": 4,
            "hyper_connection.sinkhorn_iterations": 3,
            "hyper_connection.epsilon": 1e-4,
        },
        without=("selector_*", "*.scale", "d2t", "output.weight", "token_embd.weight"),
        unread={"markov_w1.weight": (16, 64)},
        gain={"conf_proj.weight": 3},
        drafts_for=("llama", "dense"),
    ),
    # pairs of tokens, and convolutions
    "pairs": Tiny(
        keys={
            **KEYS,
            "conv_kernel_size": 3,
            "conv_group_size": 16,
            "selector_rank": 8,
            "selector_top_k": 4,
            "logit_scale": 0.75,
            "final_logit_softcapping": 5.0,
        },
        without=("markov_*", "conf_proj.*", "*.scale", "d2t", "output.weight", "token_embd.weight"),
        gain=GAIN | {"selector_*": 3},
        mean=MEAN,
        drafts_for=("qwen3", "dense"),
    ),
    # attention between candidates; the other model's embeddings and head
    "candidates": Tiny(
        keys={**KEYS, **LILICORR},
        without=(
            "markov_*", "conf_proj.*", "selector_*", "*_conv_*", "*.scale", "d2t", "output.weight",
            "token_embd.weight",
        ),
        gain=GAIN | {"lilicorr.*": 2, "blk.[234].ffn_*": 2},
        mean=MEAN,
        newest=True,
        runs=BLOCK_RUNS,
        drafts_for=("qwen3", "dense"),
    ),
    # its own embeddings and a head of some tokens; two candidates, blocks of four tokens
    "few": Tiny(
        keys={
            **KEYS,
            **LILICORR,
            "block_size": 4,
            "embedding_scale": 2.0,
            "/lilicorr.candidate_topk": 2,
            "/lilicorr.num_heads": 3,
            "/lilicorr.num_layers": 1,
        },
        without=("markov_*", "conf_proj.*", "selector_*", "*_conv_*", "*.scale"),
        unread={"d2t": (48,)},
        gain=GAIN | {"lilicorr.*": 2, "token_embd.weight": 0.3},
        mean=MEAN,
        newest=True,
        runs=BLOCK_RUNS,
        familiar=True,
        drafts_for=("llama", "dense"),
    ),
}  # fmt: skip

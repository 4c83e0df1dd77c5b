"""Checkpoints of models with latent attention, and GLM."""

from __future__ import annotations

from dev.record.author_checkpoints.shapes import (
    DRAFT,
    FE,
    HEADS,
    INDEX,
    INDEXER,
    LATENT,
    PRE,
    ROUTED,
    SIZES,
    YARN,
    Checkpoint,
    D,
    E,
    F,
    H,
    K,
    S,
    Shapes,
    attention,
    build,
    experts,
    latent,
    layers,
    matrices,
    mlp,
    model,
    nest,
    norms,
    sparse,
)  # fmt: skip


def deepseeks() -> dict[str, Checkpoint]:
    two = (latent() | mlp(), latent() | sparse())
    draft = layers("model.layers", {**PRE, **two[1], **DRAFT}, start=2)
    ocr = {
        **SIZES,
        **ROUTED,
        "architectures": ["DeepseekV2ForCausalLM"],
        "num_key_value_heads": H,
        "qk_rope_head_dim": 0,
        "qk_nope_head_dim": 0,
        "v_head_dim": 0,
        "scoring_func": "softmax",
    }
    full = nest("self_attn", matrices(**{f"{p}_proj": [D, D] for p in "qkvo"}))
    in_window = {
        "num_attention_heads": 2,
        "kv_lora_rank": 48,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 12,
        "q_lora_rank": 24,
        "head_dim": 24,
    }
    window = nest("self_attn", matrices(
        q_a_proj=[24, D], q_a_layernorm=[24], q_b_proj=[48, 24], kv_a_proj_with_mqa=[56, D],
        kv_a_layernorm=[48], kv_b_proj=[56, 48], o_proj=[D, 24]))  # fmt: skip
    notes = {"self_attn.k_rope_only_layernorm.weight": [8]}
    return {
        "deepseek": model("DeepseekForCausalLM", {**ROUTED, "scoring_func": "softmax"},
                          build(attention() | mlp(), attention() | sparse(bias=""))),
        "deepseek2": model("DeepseekV2ForCausalLM", {
            **LATENT, **ROUTED, "q_lora_rank": None, "rope_scaling": YARN,
            "scoring_func": "softmax",
            "num_nextn_predict_layers": 1},
            build(latent(q_rank=0) | mlp(), latent(q_rank=0) | sparse(bias="")) | draft),
        "deepseek-ocr": model("DeepseekOCRForCausalLM", {"language_config": ocr}, build(
            full | mlp(), full | sparse(bias="")) | {"model.sam_model.pos_embed": [1, 4, 4, D],
            "model.image_newline": [D], "model.projector.layers.weight": [D, D]}),
        "youtu": model("YoutuForCausalLM", {**LATENT, "tie_word_embeddings": True},
                       build(latent() | mlp(), latent() | mlp())),
        "deepseek32": model("DeepseekV32ForCausalLM", {
            **LATENT, **ROUTED, **INDEX, "num_nextn_predict_layers": 1},
            build(two[0] | INDEXER, two[1] | INDEXER) | draft),
        "dots1": model("Dots1ForCausalLM", ROUTED, build(
            attention() | HEADS | mlp(), attention() | HEADS | sparse())),
        "dots3note": model("Dots3NoteForCausalLM", {
            **LATENT, **ROUTED, **INDEX, **{f"swa_{k}": v for k, v in in_window.items()},
            "layer_types": ["sliding_attention", "full_attention"], "sliding_window_size": 32,
            "apply_mla_qkv_lora_rescale": True, "swa_rope_theta": 500.0},
            build(window | mlp() | notes | {"self_attn.g_proj.weight": [2, D]},
                  two[1] | INDEXER | notes | {"self_attn.g_proj.weight": [H, D]})),
        "hy_v4": model("HYV4ForCausalLM", {
            **LATENT, **ROUTED, **INDEX, "num_key_value_heads": 8, "n_group": 1, "topk_group": 1,
            "scoring_func": None, "mlp_layer_types": ["dense", "sparse"], "swiglu_limit": 10.0,
            "hc_mult": 4, "hc_eps": 1e-6, "hc_magnitude": 2.0, "indexer_types": ["full", "shared"]},
            build(two[0] | INDEXER | HYPER, latent() | HYPER | {
                "mlp.experts.gate_up_proj": [E, 2 * FE, D], "mlp.experts.down_proj": [E, D, FE],
                "mlp.gate.weight": [E, D], "mlp.gate.e_score_correction_bias": [E],
                **mlp("mlp.shared_experts", FE)})
            | {f"model.hc_head.hc_head_{k}": s for k, s in HC.items()}),
    }  # fmt: skip


HC = {"fn": [4, 4 * D], "base": [4], "scale": [1]}
HYPER = {
    **{f"hc_{p}_layer.hc_pre.hc_{k}": s for p in ("attn", "mlp") for k, s in HC.items()},
    "self_attn.learnable_sink_param": [H], "self_attn.linear_gate.weight": [H * 12, D],
}  # fmt: skip


def glms() -> dict[str, Checkpoint]:
    biases = {f"self_attn.{p}_proj.bias": [n * S] for p, n in (("q", H), ("k", K), ("v", K))}
    four = (
        attention()
        | biases
        | {
            **norms("post_self_attn_layernorm", "post_mlp_layernorm"),
            "mlp.gate_up_proj.weight": [2 * F, D],
            "mlp.down_proj.weight": [D, F],
        }
    )
    moe = attention() | HEADS
    draft = layers("model.layers", {**PRE, **moe, **sparse(), **DRAFT}, start=2)
    hidden = {"head_dim": S, "partial_rotary_factor": 0.5}
    dsa = {**LATENT, **ROUTED, **INDEX, "num_nextn_predict_layers": 1}
    latents = build(latent() | INDEXER | mlp(), latent() | INDEXER | sparse())
    no_rope = nest(
        "self_attn",
        matrices(
            q_a_proj=[24, D],
            q_a_layernorm=[24],
            q_b_proj=[H * S, 24],
            kv_a_proj_with_mqa=[32, D],
            kv_a_layernorm=[32],
            kv_b_proj=[H * 28, 32],
            o_proj=[D, H * 12],
        ),
    )
    hyper = {f"hc_{p}_{k}": s for p in ("attn", "ffn") for k, s in HC.items()}
    pool = {
        "self_attn.indexer.index_kpool_compress_ape": [4, 16],
        "self_attn.indexer.index_kpool_compress_gate": [16, D],
    }
    return {
        "glm4": model("Glm4ForCausalLM", hidden, build(four, four)),
        "glm4v": model("Glm4vForConditionalGeneration", {"text_config": {
            **SIZES, **hidden, "rope_scaling": {"type": "default", "mrope_section": [2, 1, 1],
                                                "partial_rotary_factor": 0.5}}},
            {k.replace("model.", "model.language_model.", 1): s
             for k, s in build(four, four).items()} | {"model.visual.blocks.0.norm1.weight": [D]}),
        "glm-ocr": model("GlmOcrForConditionalGeneration", {
            **hidden, "num_nextn_predict_layers": 1},
            build(four, four) | layers("model.layers", {**PRE, **four, **DRAFT}, start=2)),
        "glm4moe": model("Glm4MoeForCausalLM", {**hidden, **ROUTED, "num_nextn_predict_layers": 1},
                         build(moe | mlp(), moe | sparse()) | draft),
        "solar-open": model("SolarOpenForCausalLM", {**hidden, **ROUTED},
                            build(moe | mlp(), moe | sparse())),
        "glm4moelite": model("Glm4MoeLiteForCausalLM", {
            **LATENT, **ROUTED, "num_nextn_predict_layers": 1}, build(
            latent() | mlp(), latent() | sparse()) | layers(
            "model.layers", {**PRE, **latent(), **sparse(), **DRAFT}, start=2)),
        "glm-dsa": model("GlmMoeDsaForCausalLM", {**dsa, "indexer_types": ["full", "shared"]},
                         latents),
        "glm5-next": model("Glm5NextForConditionalGeneration", {
            **LATENT, **ROUTED, **INDEX, "qk_rope_head_dim": 0, "mla_use_nope": True, "head_dim": 0,
            "layer_types": ["linear_attention", "full_attention"], "hc_mult": 4, "hc_eps": 1e-6,
            "hc_sinkhorn_iters": 20, "index_kpool": 4, "swiglu_limit": 10.0,
            "linear_attn_config": {"num_heads": H, "head_dim": S, "short_conv_kernel_size": 4,
                                   "gate_lower_bound": -5.0}},
            build(delta() | mlp() | hyper, no_rope | sparse() | hyper | INDEXER | pool)),
    }  # fmt: skip


def delta(path: str = "self_attn") -> Shapes:
    n = H * S
    return nest(path, {
        **matrices(q_proj=[n, D], k_proj=[n, D], v_proj=[n, D], o_proj=[D, n], b_proj=[H, D],
                   f_a_proj=[S, D], f_b_proj=[n, S], g_a_proj=[S, D], g_b_proj=[n, S], o_norm=[S],
                   **{f"{p}_conv1d": [n, 1, 4] for p in "qkv"}),
        "A_log": [1, 1, H, 1] if path == "self_attn" else [H], "dt_bias": [n]})  # fmt: skip


def kimis() -> dict[str, Checkpoint]:
    linear = {
        "full_attn_layers": [2],
        "kda_layers": [1],
        "head_dim": S,
        "num_heads": H,
        "short_conv_kernel_size": 4,
    }
    routed = {
        "num_experts": E,
        "num_experts_per_token": 2,
        "num_shared_experts": 1,
        "moe_intermediate_size": FE,
        "first_k_dense_replace": 1,
        "moe_renormalize": True,
        "routed_scaling_factor": 2.4,
        "moe_router_activation_func": "sigmoid",
    }
    k3 = {
        **LATENT,
        **routed,
        "linear_attn_config": {**linear, "gate_lower_bound": -5.0},
        "mla_use_nope": True,
        "hidden_act": "situ",
        "routed_expert_hidden_size": 32,
        "activation_situ_beta": 4.0,
        "activation_situ_linear_beta": 25.0,
        "attn_res_block_size": 2,
    }
    residual = {
        f"{p}_res_{k}.weight": s
        for p in ("self_attention", "mlp")
        for k, s in (("norm", [D]), ("proj", [1, D]))
    }
    kda = (
        {k: s for k, s in delta().items() if ".g_" not in k}
        | residual
        | {"self_attn.A_log": [H], "self_attn.g_proj.weight": [H * S, D]}
    )
    mla = latent() | residual | {"self_attn.g_proj.weight": [H * 12, D]}
    moe = "block_sparse_moe"
    around = {
        f"{moe}.gate.weight": [E, D],
        f"{moe}.gate.e_score_correction_bias": [E],
        f"{moe}.routed_expert_down_proj.weight": [32, D],
        f"{moe}.routed_expert_up_proj.weight": [D, 32],
        f"{moe}.routed_expert_norm.weight": [D],
        **mlp(f"{moe}.shared_experts", FE),
    }
    ends = {"model.output_attn_res_norm.weight": [D], "model.output_attn_res_proj.weight": [1, D]}
    packed = {
        f"{moe}.experts.{i}.{w}.weight_{k}": ["U8", s]
        for i in range(E)
        for w in ("w1", "w2", "w3")
        for k, s in (("packed", [32, 16]), ("scale", [32, 1]))
    }
    quant = {
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "format": "mxfp4-pack-quantized",
        }
    }
    kinds = ((experts(f"{moe}.experts", "w1 w3 w2"), {}, ""), (packed, quant, "-mxfp4"))
    return {f"kimi-k3{end}": model("KimiK3ForConditionalGeneration", {**k3, **more}, {
        k if k.startswith("vision") else f"language_model.{k}": s for k, s in {
            **build(kda | mlp(), mla | around | each), **ends,
            "vision_tower.x.weight": [D]}.items()})
        for each, more, end in kinds}  # fmt: skip

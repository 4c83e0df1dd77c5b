"""Checkpoints of other models, most with experts."""

from __future__ import annotations

from dev.record.author_checkpoints.latent import delta
from dev.record.author_checkpoints.shapes import (
    DRAFT,
    FE,
    HEADS,
    INDEX,
    LATENT,
    PRE,
    ROUTED,
    Checkpoint,
    D,
    E,
    F,
    H,
    K,
    S,
    Shapes,
    V,
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

MOE = {"num_experts": E, "num_experts_per_tok": 2, "moe_intermediate_size": FE,
       "num_shared_experts": 1, "first_k_dense_replace": 1, "norm_topk_prob": True}  # fmt: skip


def bailings() -> dict[str, Checkpoint]:
    qkv = {
        "attention.query_key_value.weight": [(H + 2 * K) * S, D],
        "attention.dense.weight": [D, H * S],
    }
    two = qkv | norms("attention.query_layernorm", "attention.key_layernorm", n=S)
    moe = sparse(bias="mlp.gate.expert_bias")
    v2 = {
        **MOE,
        "routed_scaling_factor": 2.5,
        "score_function": "sigmoid",
        "n_group": 2,
        "topk_group": 1,
        "head_dim": S,
        "partial_rotary_factor": 0.5,
    }
    words = {"embedding": "word_embeddings"}
    kda = {k: s for k, s in delta("attention").items() if "_a_" not in k and "_b_" not in k} | {
        "attention.f_proj.weight": [H * S, D],
        "attention.g_proj.weight": [H * S, D],
    }
    mla = {k.replace("o_proj", "dense"): s for k, s in latent("attention").items()} | {
        "attention.g_proj.weight": [H, D]
    }
    v3 = {
        **LATENT,
        **v2,
        "kda_safe_gate": True,
        "no_kda_lora": True,
        "kda_lower_bound": -5.0,
        "gated_attention_proj_granularity_type": "head_wise",
        "layer_group_size": 2,
        "short_conv_kernel_size": 4,
        "moe_shared_expert_intermediate_size": FE,
        "num_nextn_predict_layers": 1,
        "expert_swiglu_limit_list": [None, 7.0],
    }
    draft = layers(
        "model.layers",
        {
            **PRE,
            **mla,
            **moe,
            **norms("final_layernorm"),
            **{k: s for k, s in DRAFT.items() if (k[0] == "e" and "embed" not in k) or k[0] == "h"},
        },
        start=2,
    )
    three = build(kda | mlp(), mla | moe, **words) | draft
    return {
        "bailingmoe": model("BailingMoeForCausalLM", {**MOE, "first_k_dense_replace": 0}, build(
            qkv | sparse(bias=""), qkv | sparse(bias=""), **words)),
        "bailingmoe2": model("BailingMoeV2ForCausalLM", {
            **v2, "num_nextn_predict_layers": 1}, build(
            two | mlp(), two | moe, **words) | layers("model.layers", {
            **PRE, **two, **moe, **norms("enorm", "hnorm", "final_layernorm"),
            "eh_proj.weight": [D, 2 * D]}, start=2)),
        "sarvam": model("SarvamMoEForCausalLM", v2, build(two | mlp(), two | moe, **words)),
        "bailingmoe3": model("BailingMoeV3ForCausalLM", v3, three),
        "bailingmoe3-vl": model("BailingMoeV3VLForConditionalGeneration", {
            **v3, "mrope_section": [2, 1, 1]}, three | {"linear_proj.0.weight": [D, D]}),
    }  # fmt: skip


def hunyuans() -> dict[str, Checkpoint]:
    heads = norms("self_attn.query_layernorm", "self_attn.key_layernorm", n=S)
    moe = {"mlp.gate.wg.weight": [E, D], **experts(), **mlp("mlp.shared_mlp", FE)}
    each = attention() | heads
    tied = {"tie_word_embeddings": True, "head_dim": S}
    dynamic = {
        "rope_scaling": {"type": "dynamic", "alpha": 1000.0},
        "max_position_embeddings": 32768,
    }
    scaled = {"type": "xdrope", "alpha": 1000.0, "xdrope_section": [2, 2, 2, 2]}
    hy3 = {**MOE, "route_norm": True, "router_scaling_factor": 2.8, "head_dim": S}
    three = attention() | HEADS
    shared = sparse("mlp.shared_mlp", "") | {"mlp.expert_bias": [E]}
    routed = {k.replace("mlp.gate.w", "mlp.router.gate.w"): s for k, s in shared.items()}
    return {
        "hunyuan-moe": model("HunYuanMoEV1ForCausalLM", {
            "num_experts": E, "moe_intermediate_size": [FE, FE], "moe_topk": [2, 2],
            "num_shared_expert": [1, 1], "hidden_size": 512},
            {k: [512 if n == D else n for n in s]
             for k, s in build(each | moe, each | moe).items()}),
        "hunyuan-dense": model("HunYuanDenseV1ForCausalLM", {**tied, **dynamic, "num_experts": 1},
                               build(each | mlp(), each | mlp())),
        "hunyuan-vl": model("HunYuanVLForConditionalGeneration", {**tied, "rope_scaling": scaled},
                            build(each | mlp(), each | mlp()) | {"vit.x.weight": [D]}),
        "hy_v3": model("HYV3ForCausalLM", hy3, build(three | mlp(), three | routed)),
    }  # fmt: skip


def mixtures() -> dict[str, Checkpoint]:
    block = "block_sparse_moe"
    moe = {f"{block}.gate.weight": [E, D], **experts(f"{block}.experts", "w1 w3 w2")}
    m2 = attention() | HEADS | moe | {f"{block}.e_score_correction_bias": [E]}
    chosen = {
        "num_local_experts": E,
        "num_experts_per_tok": 2,
        "rotary_dim": 8,
        "head_dim": S,
        "scoring_func": "sigmoid",
    }
    index = nest(
        "self_attn",
        matrices(index_q_proj=[32, D], index_k_proj=[16, D], index_q_norm=[16], index_k_norm=[16]),
    )
    m3 = {
        **chosen,
        "n_shared_experts": 1,
        "routed_scaling_factor": 2.0,
        "moe_layer_freq": [0, 1],
        "dense_intermediate_size": F,
        "sparse_attention_config": {
            "sparse_num_index_heads": 2,
            "sparse_index_dim": 16,
            "sparse_topk_blocks": 4,
            "sparse_block_size": 16,
            "sparse_local_block": 1,
        },
    }
    ernie = {
        "moe_num_experts": E,
        "moe_k": 2,
        "moe_layer_interval": 1,
        "moe_layer_start_index": 1,
        "moe_intermediate_size": FE,
        "moe_num_shared_experts": 2,
    }
    bias = {"mlp.moe_statics.e_score_correction_bias": [1, E]}
    fused = {
        "self_attn.qkv_proj.weight": [(H + 2 * K) * S, D],
        "self_attn.o_proj.weight": [D, H * S],
        "mlp.up_gate_proj.weight": [2 * F, D],
        "mlp.down_proj.weight": [D, F],
    }
    mimo = {
        **ROUTED,
        "head_dim": S,
        "v_head_dim": 8,
        "swa_head_dim": S,
        "swa_v_head_dim": 8,
        "swa_num_attention_heads": H,
        "swa_num_key_value_heads": 4,
        "topk_method": "noaux_tc",
        "hybrid_layer_pattern": [0, 1],
        "sliding_window": 32,
        "swa_rope_theta": 500.0,
        "partial_rotary_factor": 0.5,
        "attention_value_scale": 0.7,
        "n_shared_experts": None,
    }
    scores = sparse("", "mlp.gate.e_score_correction_bias")

    def rows(n_key: int) -> Shapes:
        return {
            "self_attn.q_proj.weight": [H * S, D],
            "self_attn.k_proj.weight": [n_key * S, D],
            "self_attn.v_proj.weight": [n_key * 8, D],
            "self_attn.o_proj.weight": [D, H * 8],
        }

    step = {
        "num_attention_groups": K,
        "num_key_value_heads": None,
        "head_dim": S,
        "layer_types": ["full_attention", "sliding_attention"],
        "sliding_window": 32,
        "partial_rotary_factors": [0.5, 1.0],
        "rope_theta": [10000.0, 500.0],
        "attention_other_setting": {"num_attention_heads": 8, "num_attention_groups": 4},
        "moe_num_experts": E,
        "moe_top_k": 2,
        "moe_intermediate_size": FE,
        "share_expert_dim": FE,
        "moe_layers_enum": "1",
        "moe_router_activation": "sigmoid",
        "norm_expert_weight": True,
        "moe_router_scaling_factor": 3.0,
        "swiglu_limits": [0.0, 7.0],
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 2.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 32.0,
            "original_max_position_embeddings": 128,
        },
    }
    wide = nest(
        "self_attn",
        matrices(
            q_proj=[8 * S, D],
            k_proj=[4 * S, D],
            v_proj=[4 * S, D],
            o_proj=[D, 8 * S],
            g_proj=[8, D],
        ),
    )
    joined = {
        "moe.gate.weight": [E, D],
        "moe.router_bias": [E],
        **{f"moe.{p}_proj.weight": [E, FE, D] for p in ("gate", "up")},
        "moe.down_proj.weight": [E, D, FE],
        **mlp("share_expert", FE),
    }
    return {
        "minimax-m2": model("MiniMaxM2ForCausalLM", chosen, build(m2, m2)),
        "minimax-m3": model("MiniMaxM3SparseForCausalLM", m3, build(
            attention() | HEADS | mlp(), m2 | index | mlp(f"{block}.shared_experts", FE))),
        "ernie4_5moe": model("Ernie4_5_MoeForCausalLM", ernie, build(
            attention() | mlp(), attention() | sparse(bias="") | bias)
            | {"model.mtp_block.0.mlp.up_proj.weight": [F, D]}),
        "paddleocr": model("PaddleOCRVLForConditionalGeneration", {
            "rope_scaling": {"type": "default", "mrope_section": [2, 1, 1]}}, build(fused, fused)
            | {"mlp_AR.linear_1.weight": [D, D], "visual.vision_model.x.weight": [D]}),
        "mimo2": model("MiMoV2FlashForCausalLM", mimo, build(
            rows(K) | mlp(), rows(4) | scores | {"self_attn.attention_sink_bias": [H]})),
        "step35": model("Step3p5ForCausalLM", step, build(
            attention() | HEADS | mlp() | {"self_attn.g_proj.weight": [H, D]},
            wide | HEADS | joined)),
        "step3-vl": model("StepVLForConditionalGeneration", {"head_dim": S}, build(
            attention() | HEADS | mlp(), attention() | HEADS | mlp())
            | {"vit_large_projector.weight": [D, D], "vision_model.x.weight": [D]}),
        "deepseek4": deepseek4(),
    }  # fmt: skip


def deepseek4() -> Checkpoint:
    half, eight = "BF16", "F8_E4M3"
    hyper = {
        f"hc_{p}_{k}": s
        for p in ("attn", "ffn")
        for k, s in (("fn", [24, 4 * D]), ("base", [24]), ("scale", [3]))
    }

    def fp8(**shapes: list[int]) -> Shapes:
        made: Shapes = {}
        for name, shape in shapes.items():
            path = name.replace("__", ".")
            made[f"{path}.weight"] = [eight, shape]
            made[f"{path}.scale"] = ["F8_E8M0", [-(-n // 128) for n in shape]]
        return made

    def pack_experts() -> Shapes:
        made: Shapes = {}
        for i in range(E):
            for w, (n, n_in) in (("w1", (64, D)), ("w2", (D, 64)), ("w3", (64, D))):
                made[f"ffn.experts.{i}.{w}.weight"] = ["I8", [n, n_in // 2]]
                made[f"ffn.experts.{i}.{w}.scale"] = ["F8_E8M0", [n, n_in // 32]]
        return made

    def compressor(path: str, n: int) -> Shapes:
        return {
            f"{path}.ape": [4, n],
            f"{path}.norm.weight": [half, [n]],
            f"{path}.wkv.weight": [half, [n, D]],
            f"{path}.wgate.weight": [half, [n, D]],
        }

    one = {
        **{f"{n}.weight": [half, [D]] for n in ("attn_norm", "ffn_norm")},
        **hyper,
        **fp8(
            attn__wq_a=[32, D],
            attn__wq_b=[256, 32],
            attn__wkv=[64, D],
            attn__wo_a=[64, 128],
            attn__wo_b=[D, 64],
        ),
        "attn.q_norm.weight": [half, [32]],
        "attn.kv_norm.weight": [half, [64]],
        "attn.attn_sink": [H],
        **pack_experts(),
        **fp8(
            ffn__shared_experts__w1=[64, D],
            ffn__shared_experts__w2=[D, 64],
            ffn__shared_experts__w3=[64, D],
        ),
        "ffn.gate.weight": [half, [E, D]],
    }
    index = {
        **compressor("attn.compressor", 64),
        **compressor("attn.indexer.compressor", 32),
        **fp8(attn__indexer__wq_b=[64, 32]),
        "attn.indexer.weights_proj.weight": [half, [2, D]],
    }
    return model("DeepseekV4ForCausalLM", {
        **ROUTED, **INDEX, "scoring_func": "sqrtsoftplus", "num_key_value_heads": 1, "head_dim": 64,
        "qk_rope_head_dim": 16, "q_lora_rank": 32, "sliding_window": 32, "swiglu_limit": 10.0,
        "o_groups": 2, "o_lora_rank": 32, "compress_ratios": [0, 4],
        "compress_rope_theta": 160000.0,
        "hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-6, "num_hash_layers": 1,
        "rope_scaling": {"type": "yarn", "factor": 16, "original_max_position_embeddings": 64,
                         "beta_fast": 32, "beta_slow": 1}}, {
        "embed.weight": [half, [V, D]], "norm.weight": [half, [D]], "head.weight": [half, [V, D]],
        "hc_head_fn": [4, 4 * D], "hc_head_base": [4], "hc_head_scale": [1],
        **layers("layers", {**one, "ffn.gate.tid2eid": ["I64", [V, 2]]},
                 {**one, **index, "ffn.gate.bias": [E]}),
        "mtp.0.e_proj.weight": [half, [D, D]]})  # fmt: skip

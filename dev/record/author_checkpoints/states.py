"""Checkpoints of models with recurrent states: Mamba, RWKV, and hybrids with attention."""

from __future__ import annotations

from typing import Any

from dev.record.author_checkpoints.shapes import (
    FE,
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
    layers,
    matrices,
    mlp,
    model,
    nest,
    norms,
    outer,
)  # fmt: skip

INNER, STATE, RANK = 128, 4, 4  # of Mamba
HEADS_2, SIZE_2 = 4, 32  # of Mamba 2


def mamba(path: str) -> Shapes:
    return nest(path, {
        **matrices(in_proj=[2 * INNER, D], conv1d=[INNER, 1, 4], x_proj=[RANK + 2 * STATE, INNER],
                   dt_proj=[INNER, RANK], out_proj=[D, INNER]),
        "conv1d.bias": [INNER], "dt_proj.bias": [INNER], "A_log": [INNER, STATE], "D": [INNER],
    })  # fmt: skip


def mamba2(path: str, has_norm: bool = True) -> Shapes:
    n = INNER + 2 * 16
    return nest(path, {
        **matrices(in_proj=[INNER + n + HEADS_2, D], conv1d=[n, 1, 4], out_proj=[D, INNER]),
        "conv1d.bias": [n], "dt_bias": [HEADS_2], "A_log": [HEADS_2], "D": [HEADS_2],
        **({"norm.weight": [INNER]} if has_norm else {}),
    })  # fmt: skip


def backbone(*each: Shapes) -> Shapes:
    return {"backbone.embeddings.weight": [V, D], "backbone.norm_f.weight": [D],
            "lm_head.weight": [V, D],
            **layers("backbone.layers", *({"norm.weight": [D], **one} for one in each)),
            }  # fmt: skip


def mambas() -> dict[str, Checkpoint]:
    one = mamba("mixer")
    sizes = {
        "state_size": STATE,
        "time_step_rank": RANK,
        "intermediate_size": INNER,
        "conv_kernel": 4,
        "layer_norm_epsilon": 1e-5,
    }
    hybrid = {
        "mamba_d_state": STATE,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "mamba_dt_rank": RANK,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "num_experts": E,
        "num_experts_per_tok": 2,
    }
    inner = {
        f"mamba.{p}_layernorm.weight": [n] for p, n in (("dt", RANK), ("b", STATE), ("c", STATE))
    }
    around = norms("input_layernorm", "pre_ff_layernorm")
    moe = {"feed_forward.router.weight": [E, D], **experts("feed_forward.experts")}
    return {
        "mamba": model("MambaForCausalLM", sizes, backbone(one, one)),
        "falcon-mamba": model("FalconMambaForCausalLM", {**sizes, "model_type": "falcon_mamba"},
                              backbone(one, one)),
        "jamba": model("JambaForCausalLM", hybrid, {
            "model.embed_tokens.weight": [V, D], "model.final_layernorm.weight": [D],
            "lm_head.weight": [V, D], **layers("model.layers",
            {**around, **mamba("mamba"), **inner, **mlp("feed_forward")},
            {**around, **attention(), **moe})}),
    }  # fmt: skip


def granites() -> dict[str, Checkpoint]:
    scales = {
        "attention_multiplier": 0.25,
        "embedding_multiplier": 12.0,
        "residual_multiplier": 0.5,
        "logits_scaling": 8.0,
    }
    moe = {"num_local_experts": E, "num_experts_per_tok": 2, "shared_intermediate_size": FE}
    routed = {
        "block_sparse_moe.router.layer.weight": [E, D],
        "block_sparse_moe.input_linear.weight": [E, 2 * F, D],
        "block_sparse_moe.output_linear.weight": [E, D, F],
    }
    shared = {
        "shared_mlp.input_linear.weight": [2 * FE, D],
        "shared_mlp.output_linear.weight": [D, FE],
    }
    sinks = {"self_attn.sinks": [H]}
    windows = {"sliding_window": 32, "layer_types": ["sliding_attention", "full_attention"]}
    fused = {
        "block_sparse_moe.router.weight": [E, D],
        "block_sparse_moe.experts.gate_up_proj": [E, 2 * F, D],
        "block_sparse_moe.experts.down_proj": [E, D, F],
    }
    two = {
        "mamba_n_heads": HEADS_2,
        "mamba_d_head": SIZE_2,
        "mamba_d_state": 16,
        "mamba_d_conv": 4,
        "mamba_n_groups": 1,
        "mamba_expand": 2,
    }
    bamba = norms("input_layernorm", "pre_ff_layernorm") | mlp("feed_forward")
    return {
        "granite-scaled": model("GraniteForCausalLM", {**scales, "head_dim": S},
                                build(attention() | mlp(), attention() | mlp())),
        "granite-swa": model("GraniteSWAForCausalLM", {
            **scales, **windows, "no_rope_layers": [1, 0]},
                             build(attention() | mlp() | sinks, attention() | mlp() | sinks)),
        "granitemoe-swa": model("GraniteMoeSWAForCausalLM", {**scales, **moe, **windows},
                                build(attention() | fused | shared | sinks,
                                      attention() | routed | shared | sinks)),
        "granitemoe": model("GraniteMoeForCausalLM", {
            **scales, **moe, "shared_intermediate_size": None},
            build(attention() | routed, attention() | routed)),
        "granitemoe-shared": model("GraniteMoeSharedForCausalLM", {**scales, **moe},
                                   build(*[attention() | routed | shared] * 2)),
        "granitehybrid-dense": model("GraniteMoeHybridForCausalLM", {
            **scales, **two, "num_local_experts": 0, "shared_intermediate_size": FE,
            "layer_types": ["attention"] * 2}, build(attention() | shared, attention() | shared)),
        "granite-switch": model("GraniteSwitchForCausalLM", {
            **scales, "num_hidden_layers": 3, "num_adapters": 2, "max_lora_rank": 8,
            "shared_intermediate_size": FE, "adapter_token_ids": [5, 6], "num_experts_per_tok": 2,
            "adapter_substitute_token_ids": [7, 8]}, build(adapters(), adapters()) | {
            "model.switch.adapter_token_ids": ["F32", [2]]}),
        "bamba": model("BambaForCausalLM", {
            **two, "attn_layer_indices": [1], "attn_rotary_emb": 8}, {
            "model.embed_tokens.weight": [V, D], "model.final_layernorm.weight": [D],
            "lm_head.weight": [V, D],
            **layers("model.layers", bamba | mamba2("mamba"), bamba | attention())}),
    }  # fmt: skip


def adapters() -> Shapes:
    def pairs(path: str, outs: list[int], n_in: int) -> Shapes:
        made = {f"{path}.base_layer.weight": [sum(outs), n_in]}
        for i, n in enumerate(outs):
            end = f"_slices.{i}" if len(outs) > 1 else ""
            made |= {f"{path}.lora_A{end}": [2, 1, 8, n_in], f"{path}.lora_B{end}": [2, 1, n, 8]}
        return made

    return {**pairs("self_attn.qkv_proj", [H * S, K * S, K * S], D),
            **pairs("self_attn.o_proj", [D], H * S), **pairs("shared_mlp.output_linear", [D], FE),
            **pairs("shared_mlp.input_linear", [FE, FE], D)}  # fmt: skip


def nemotrons() -> dict[str, Checkpoint]:
    sizes = {
        "num_hidden_layers": 4,
        "head_dim": S,
        "mamba_num_heads": HEADS_2,
        "mamba_head_dim": SIZE_2,
        "ssm_state_size": 16,
        "n_groups": 1,
        "conv_kernel": 4,
        "expand": 2,
        "layer_norm_epsilon": 1e-5,
        "norm_eps": 1e-5,
    }
    moe = {
        **ROUTED,
        "moe_shared_expert_intermediate_size": FE,
        "n_group": 1,
        "topk_group": 1,
        "scoring_func": None,
        "first_k_dense_replace": None,
    }
    feed = nest("mixer", matrices(up_proj=[F, D], down_proj=[D, F]))
    routed = nest(
        "mixer",
        {
            "gate.weight": [E, D],
            "gate.e_score_correction_bias": [E],
            **{
                f"experts.{i}.{p}.weight": s
                for i in range(E)
                for p, s in (("up_proj", [FE, 32]), ("down_proj", [32, FE]))
            },
            **matrices(
                shared_experts__up_proj=[FE, D],
                shared_experts__down_proj=[D, FE],
                fc1_latent_proj=[32, D],
                fc2_latent_proj=[D, 32],
            ),
        },
    )
    each = (mamba2("mixer"), feed, attention("mixer"), feed)
    sparse = (mamba2("mixer"), routed, attention("mixer"), routed)
    draft = {
        **nest(
            "mtp.layers.0",
            {**norms("enorm", "hnorm", "norm"), "eh_proj.weight": [D, 2 * D], **attention("mixer")},
        ),
        **nest("mtp.layers.1", {**norms("norm", "final_layernorm"), **routed}),
    }
    puzzle = [
        {"block_type": "mamba"},
        {"block_type": "moe", "moe_intermediate_size": FE, "num_experts_per_tok": 2},
        {"block_type": "attention"},
        {"block_type": "moe", "moe_intermediate_size": FE, "num_experts_per_tok": 1},
    ]
    old = {"partial_rotary_factor": 0.5, "norm_eps": 1e-5, "rms_norm_eps": None}
    one = (
        attention()
        | matrices(mlp__up_proj=[F, D], mlp__down_proj=[D, F])
        | {"input_layernorm.bias": [D], "post_attention_layernorm.bias": [D]}
    )
    return {
        "nemotron": model("NemotronForCausalLM", old, build(one, one) | {"model.norm.bias": [D]}),
        "nemotron_h": model("NemotronHForCausalLM", {**sizes, "hybrid_override_pattern": "M-*-"},
                            backbone(*each)),
        "nemotron_h_moe": model("NemotronHForCausalLM", {
            **sizes, **moe, "moe_latent_size": 32, "num_nextn_predict_layers": 1,
            "hybrid_override_pattern": "ME*E"}, backbone(*sparse) | draft),
        "nemotron_h_puzzle": model("NemotronHPuzzleForCausalLM", {
            **sizes, **moe, "moe_latent_size": 32, "block_configs": puzzle,
            "num_experts_per_tok": None, "moe_intermediate_size": None}, {
            k.replace("backbone.", "model."): s for k, s in (backbone(*sparse) | draft).items()}),
    }  # fmt: skip


def rwkv6(path: str) -> Shapes:
    made: Shapes = {f"{path}.time_maa_{p}": [1, 1, D] for p in "xwkvrg"}
    made |= {
        f"{path}.time_maa_w1": [D, 5 * 32],
        f"{path}.time_maa_w2": [5, 32, D],
        f"{path}.time_decay": [1, 1, D],
        f"{path}.time_decay_w1": [D, 64],
        f"{path}.time_decay_w2": [64, D],
        f"{path}.time_faaaa": [H, S],
    }
    return made  # fmt: skip


def recurrents() -> dict[str, Checkpoint]:
    six = {
        **norms("ln1", "ln2"),
        "ln1.bias": [D],
        "ln2.bias": [D],
        **rwkv6("attention"),
        **nest(
            "attention",
            matrices(
                **{p: [D, D] for p in ("key", "value", "receptance", "gate", "output")}, ln_x=[D]
            ),
        ),
        "attention.ln_x.bias": [D],
        "feed_forward.time_maa_k": [1, 1, D],
        "feed_forward.time_maa_r": [1, 1, D],
        **nest("feed_forward", matrices(key=[F, D], value=[D, F], receptance=[D, D])),
    }
    qwen = (
        attention()
        | {k: s for k, s in rwkv6("self_attn").items() if not k.endswith("faaaa")}
        | mlp()
        | {
            "self_attn.gate.weight": [D, D],
            **{f"self_attn.{p}_proj.bias": [n] for p, n in (("q", D), ("k", K * S), ("v", K * S))},
        }
    )
    seven = {
        **attention("self_attn.time_mixer"),
        **mlp(),
        **{f"self_attn.time_mixer.x_{p}": [1, 1, D] for p in "rwkvag"},
        **{
            f"self_attn.time_mixer.{p}{i}": s
            for p in "wavg"
            for i, s in ((0, [1, 1, D]), (1, [D, 8]), (2, [8, D]))
            if p != "g" or i
        },
        "self_attn.time_mixer.k_k": [1, 1, D],
        "self_attn.time_mixer.k_a": [1, 1, D],
        "self_attn.time_mixer.r_k": [H, S],
        "self_attn.time_mixer.ln_x.weight": [D],
        "self_attn.time_mixer.ln_x.bias": [D],
    }
    seven = {k.replace("q_proj", "r_proj"): s for k, s in seven.items()}
    conv = {**matrices(conv__conv=[D, 1, 3], conv__in_proj=[3 * D, D], conv__out_proj=[D, D])}
    out = {k.replace("o_proj", "out_proj"): s for k, s in attention().items()}
    out |= norms("self_attn.q_layernorm", "self_attn.k_layernorm", n=S)
    around = norms("operator_norm", "ffn_norm")
    dense = matrices(feed_forward__w1=[F, D], feed_forward__w2=[D, F], feed_forward__w3=[F, D])
    moe = {
        "feed_forward.gate.weight": [E, D],
        "feed_forward.expert_bias": [E],
        **experts("feed_forward.experts", "w1 w3 w2"),
    }
    lfm = {
        "layer_types": ["conv", "full_attention"],
        "conv_L_cache": 3,
        "norm_eps": 1e-5,
        "rms_norm_eps": None,
    }
    adjust = {
        "block_auto_adjust_ff_dim": False,
        "block_ffn_dim_multiplier": 1.0,
        "block_multiple_of": 256,
    }
    bare = {
        "embedding_norm.weight": [D],
        "embed_tokens.weight": [V, D],
        **layers("layers", around | conv | dense, around | out | dense),
    }
    return {
        "rwkv6": model("Rwkv6ForCausalLM", {
            "head_size": S, "layer_norm_epsilon": 1e-5, "rescale_every": 1}, {
            "rwkv.embeddings.weight": [V, D], "rwkv.blocks.0.pre_ln.weight": [D],
            "rwkv.blocks.0.pre_ln.bias": [D], "rwkv.ln_out.weight": [D], "rwkv.ln_out.bias": [D],
            "head.weight": [V, D], **layers("rwkv.blocks", six, six)}),
        "rwkv6qwen2": model("RWKV6Qwen2ForCausalLM", {}, build(qwen, qwen)),
        "arwkv7": model("RwkvHybridForCausalLM", {
            "head_size": S, "wkv_has_gate": True, "wkv_version": 7}, build(seven, seven)),
        "rwkv7": rwkv7(),
        "plamo2": model("Plamo2ForCausalLM", {
            "hidden_size_per_head": S, "mamba_d_state": 16, "mamba_num_heads": HEADS_2,
            "mamba_step": 2}, plamo(2)),
        "plamo3": model("Plamo3ForCausalLM", {
            "head_dim": S, "window_size": 32, "sliding_window_pattern": 2,
            "rope_local_theta": 500.0,
            "rope_scaling_factor": 4, "initial_context_length": 256}, plamo(3)),
        "lfm2moe": model("Lfm2MoeForCausalLM", {
            **lfm, "num_experts": E, "num_experts_per_tok": 2, "moe_intermediate_size": FE,
            "num_dense_layers": 1}, {
            "model.embed_tokens.weight": [V, D], "model.embedding_norm.weight": [D],
            **layers("model.layers", around | conv | dense, around | out | moe)}),
        "lfm2-embedding": model("Lfm2BidirectionalModel", {**lfm, **adjust}, bare),
        "lfm2-sound": model("Lfm25AudioTokenizer", {
            **lfm, **adjust, "sliding_window": 30, "output_size": 80}, {
            "emb.emb.weight": [V, D], "istft.window": [8], "lin.weight": [80, D], "lin.bias": [80],
            **{f"lfm.{k}": s for k, s in bare.items() if not k.startswith("embed_")}}),
    }  # fmt: skip


def rwkv7() -> Checkpoint:
    """Return a model in the layout of flash-linear-attention."""
    ranks = {"w": 16, "a": 16, "v": 8, "g": 24}
    each: list[Shapes] = []
    for i in range(2):
        one = nest("attn", {f"x_{p}": [1, 1, D] for p in "rwkvag"})
        one |= nest("attn", matrices(**{f"{p}_proj": [D, D] for p in "rkvo"}, g_norm=[D]))
        one |= {"attn.g_norm.bias": [D], "attn.k_k": [D], "attn.k_a": [D], "attn.r_k": [H, S]}
        for part, rank in ranks.items():
            if part != "v" or i:
                path = f"attn.{part}_lora.lora"
                one |= {f"{path}.0.weight": [rank, D], f"{path}.2.weight": [D, rank]}
                one |= {f"{path}.2.bias": [D]} if part != "g" else {}
        one |= matrices(attn_norm=[D], ffn_norm=[D], ffn__key=[F, D], ffn__value=[D, F])
        one |= {"attn_norm.bias": [D], "ffn_norm.bias": [D], "ffn.x_k": [D]}
        each.append(one | ({} if i else {"pre_norm.weight": [D], "pre_norm.bias": [D]}))
    named = {"decay": "w", "a": "a", "v": "v", "gate": "g"}
    config = {f"{name}_low_rank_dim": ranks[part] for name, part in named.items()}
    shapes = {"model.embeddings.weight": [V, D], "model.norm.weight": [D], "model.norm.bias": [D]}
    shapes |= {"lm_head.weight": [V, D], **layers("model.layers", *each)}
    return model("RWKV7ForCausalLM", {**config, "head_dim": S, "norm_eps": 1e-5}, shapes)


def plamo(version: int) -> Shapes:
    path = "model.layers.layers"
    around: dict[str, Any] = {
        **norms("pre_mixer_norm", "post_mixer_norm", "pre_mlp_norm", "post_mlp_norm"),
        **matrices(mlp__gate_up_proj=[2 * F, D], mlp__down_proj=[D, F]),
    }
    full = around | matrices(mixer__qkv_proj=[(H + 2 * K) * S, D], mixer__o_proj=[D, H * S])
    if version == 3:
        full |= norms("mixer.q_norm", "mixer.k_norm", n=S)
        return outer() | layers(path, full, full)
    full |= {"mixer.q_weight": [H, S], "mixer.k_weight": [K, S]}
    n = HEADS_2 * S
    state = around | nest(
        "mixer",
        {
            **matrices(
                in_proj=[2 * n, D],
                conv1d=[n, 1, 4],
                bcdt_proj=[64 + 32, n],
                dt_proj=[HEADS_2, 64],
                out_proj=[D, n],
            ),
            "dt_bias": [HEADS_2],
            "A_log": [HEADS_2],
            "D": [HEADS_2],
            "dt_norm_weight": [64],
            "B_norm_weight": [16],
            "C_norm_weight": [16],
        },
    )
    return outer() | layers(path, state, full)  # fmt: skip

#!/usr/bin/env python3
"""Tiny checkpoints of classes that transformers lacks: config.json and names and shapes of tensors.

    python -m dev.record.handmade_checkpoints LLAMA_CPP OUT [NAME ...]

OUT gets a folder NAME, and NAME.gguf by llama.cpp's converter (dev/compare/transformers_side.py).
"""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dev.compare.transformers_side import convert
from dev.record import media_checkpoints, sound_checkpoints
from dev.record.tiny_checkpoints import N_VOCAB, write_folder

E, F, H, KV, D, N = 64, 96, 4, 2, 16, 2  # embedding, feed-forward, heads, size of a head, layers
X, FX = 4, 48  # experts, and their feed-forward networks
Shapes = Mapping[str, Any]
SIZES: dict[str, Any] = {
    "vocab_size": N_VOCAB, "hidden_size": E, "intermediate_size": F, "num_hidden_layers": N,
    "num_attention_heads": H, "num_key_value_heads": KV, "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
    "tie_word_embeddings": False, "model_type": "handmade",
}  # fmt: skip
MODEL: Shapes = {"model.embed_tokens": (N_VOCAB, E), "model.norm": (E,), "lm_head": (N_VOCAB, E)}
NORMS: Shapes = {"input_layernorm": (E,), "post_attention_layernorm": (E,)}
ATTENTION: Shapes = {
    "self_attn.q_proj": (H * D, E),
    "self_attn.k_proj": (KV * D, E),
    "self_attn.v_proj": (KV * D, E),
    "self_attn.o_proj": (E, H * D),
}
HEAD_NORMS: Shapes = {"self_attn.q_norm": (D,), "self_attn.k_norm": (D,)}
MLP: Shapes = {"mlp.gate_proj": (F, E), "mlp.up_proj": (F, E), "mlp.down_proj": (E, F)}
LLAMA = {**NORMS, **ATTENTION, **MLP}


def experts(path: str, gate: str, up: str, down: str, n: int = X) -> dict[str, Any]:
    """Return matrices of numbered experts."""
    made = dict[str, Any]()
    for i in range(n):
        made |= {f"{path}.{i}.{gate}": (FX, E), f"{path}.{i}.{up}": (FX, E)}
        made[f"{path}.{i}.{down}"] = (E, FX)
    return made


QWEN_EXPERTS = {
    **NORMS,
    **ATTENTION,
    "mlp.gate": (X, E),
    **experts("mlp.experts", "gate_proj", "up_proj", "down_proj"),
}
EXPERTS = {"num_experts": X, "num_experts_per_tok": 2, "moe_intermediate_size": FX}
WINDOWS = {
    "sliding_window": 64,
    "layer_types": ["sliding_attention", "full_attention"],
    "head_dim": D,
}
ROPE = {"rope_theta": 10000.0, "rope_type": "default", "partial_rotary_factor": 0.5}
BOTH = {"rope_parameters": {"full_attention": ROPE, "sliding_attention": {**ROPE}}}
DELTA: dict[str, Any] = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": D,
    "linear_value_head_dim": D,
    "linear_conv_kernel_dim": 4,
    "layer_types": ["linear_attention", "full_attention"],
}
VISION = {"vision_config": {"deepstack_visual_indexes": [1, 2, 3]}}
SECTIONS = {"rope_parameters": {"rope_theta": 10000.0, "rope_type": "default",
                                "mrope_section": [4, 2, 2]}}  # fmt: skip


def model(
    name: str,
    more: Mapping[str, Any],
    layers: Shapes = LLAMA,
    top: Shapes = MODEL,
    path: str = "model.layers.{}",
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return config.json, and dtype and shape by name. A module's name has `.weight` added unless
    it ends with `!`."""
    config = {"architectures": [name], **SIZES, **more}
    config = {k: v for k, v in config.items() if v is not None}
    shapes = dict(top)
    for i in range(N if layers else 0):
        shapes |= {f"{path.format(i)}.{module}": shape for module, shape in layers.items()}
    named = {n[:-1] if n.endswith("!") else f"{n}.weight": s for n, s in shapes.items()}
    integers = ("d2t", "t2d", "multipliers", "heads_offsets", "vocab_sizes")
    return config, {n: ["I64" if n.endswith(integers) else "F32", [*s]] for n, s in named.items()}


def params(more: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return params.json, and dtype and shape by name, of Mistral's format."""
    config = {"dim": E, "n_layers": N, "head_dim": D, "hidden_dim": F, "n_heads": H,
              "n_kv_heads": KV, "norm_eps": 1e-5, "vocab_size": N_VOCAB,
              "max_position_embeddings": 1024, **more}  # fmt: skip
    layer = {"attention_norm": (E,), "ffn_norm": (E,), "attention.wq": (H * D, E),
             "attention.wk": (KV * D, E), "attention.wv": (KV * D, E), "attention.wo": (E, H * D),
             "feed_forward.w1": (F, E), "feed_forward.w2": (E, F),
             "feed_forward.w3": (F, E)}  # fmt: skip
    outer = {"tok_embeddings": (N_VOCAB, E), "norm": (E,), "output": (N_VOCAB, E)}
    _, tensors = model("", {}, layer, outer, "layers.{}")
    return config, tensors


def add_prefix(path: str, shapes: Shapes) -> dict[str, Any]:
    return {f"{path}{name}": shape for name, shape in shapes.items()}


CHECKPOINTS: dict[str, tuple[dict[str, Any], ...]] = {
    "exaone": model(
        "ExaoneForCausalLM",
        {"activation_function": "silu", "layer_norm_epsilon": 1e-5},
        {"ln_1": (E,), "ln_2": (E,), **add_prefix("attn.attention.", {
            "q_proj": (H * D, E), "k_proj": (KV * D, E), "v_proj": (KV * D, E),
            "out_proj": (E, H * D)}),
         "mlp.c_fc_0": (F, E), "mlp.c_fc_1": (F, E), "mlp.c_proj": (E, F)},
        {"transformer.wte": (N_VOCAB, E), "transformer.ln_f": (E,), "lm_head": (N_VOCAB, E)},
        "transformer.h.{}",
    ),
    "exaone-moe-nextn": model(
        "ExaoneMoEForCausalLM",
        {**EXPERTS, **WINDOWS, "num_shared_experts": 1, "routed_scaling_factor": 2.5,
         "norm_topk_prob": True, "num_nextn_predict_layers": 1, "scoring_func": "sigmoid"},
        {**QWEN_EXPERTS, **HEAD_NORMS, "mlp.e_score_correction_bias!": (X,)},
        {**MODEL, "mtp.fc": (E, 2 * E), "mtp.norm": (E,), "mtp.pre_fc_norm_embedding": (E,),
         "mtp.pre_fc_norm_hidden": (E,), **add_prefix("mtp.layers.0.", LLAMA)},
    ),
    "exaone45": model(
        "Exaone4_5_ForConditionalGeneration",
        {**WINDOWS, "num_nextn_predict_layers": 2, "mtp_share_layers": True},
        {**ATTENTION, **MLP, **HEAD_NORMS, "post_attention_layernorm": (E,),
         "post_feedforward_layernorm": (E,)},
        {**MODEL, "mtp.fc": (E, 2 * E), "mtp.norm": (E,), "mtp.pre_fc_norm_embedding": (E,),
         "mtp.pre_fc_norm_hidden": (E,), **add_prefix("mtp.layers.0.", {
             **ATTENTION, **MLP, "post_attention_layernorm": (E,)})},
    ),
    "llama-embed": model("LlamaBidirectionalModel", {}, LLAMA, {
        "embed_tokens": (N_VOCAB, E), "norm": (E,)}, "layers.{}"),
    "nanbeige": model("NanbeigeForCausalLM", {"num_loops": 2, "skip_loop_final_norm": True}),
    "janus": model("JanusForConditionalGeneration", {}, LLAMA, {
        **add_prefix("model.language_model.", {"embed_tokens": (N_VOCAB, E), "norm": (E,)}),
        "lm_head": (N_VOCAB, E), "model.vision_model.x": (E,), "model.aligner.fc1": (E, E)},
        "model.language_model.layers.{}"),
    "sarashina": model("Sarashina2VisionForCausalLM", {}, LLAMA, {
        **add_prefix("llm.", MODEL), "norm": (E,), "visual.merger.x": (E,)}, "llm.model.layers.{}"),
    "pangu": model("PanguEmbeddedForCausalLM", {}),
    "cogvlm": model(
        "CogVLMForCausalLM", {},
        {**NORMS, "self_attn.language_expert_query_key_value": (3 * E, E),
         "self_attn.language_expert_dense": (E, E),
         **{n.replace("mlp.", "mlp.language_mlp."): s for n, s in MLP.items()}},
    ),
    "minicpm": model("MiniCPMForCausalLM", {
        "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256, "rope_scaling": {
            "rope_type": "longrope", "long_factor": [1.5] * 8, "short_factor": [1.25] * 8,
            "original_max_position_embeddings": 512}}),
    "minicpmv46": model(
        "MiniCPMV4_6ForConditionalGeneration",
        {**DELTA, "head_dim": D, "mtp_num_hidden_layers": 0, **SECTIONS},
        {**LLAMA, **HEAD_NORMS},
    ),
    "internlm2": model(
        "InternLM2ForCausalLM", {},
        {"attention_norm": (E,), "ffn_norm": (E,), "attention.wqkv": ((H + 2 * KV) * D, E),
         "attention.wo": (E, E), "feed_forward.w1": (F, E), "feed_forward.w2": (E, F),
         "feed_forward.w3": (F, E)},
        {"model.tok_embeddings": (N_VOCAB, E), "model.norm": (E,), "output": (N_VOCAB, E)},
    ),
    "chatglm": model(
        "ChatGLMModel",
        {"ffn_hidden_size": F, "multi_query_group_num": KV, "num_layers": N, "seq_length": 2048,
         "layernorm_epsilon": 1e-5, "rope_ratio": 500, "padded_vocab_size": N_VOCAB},
        {"input_layernorm": (E,), "post_attention_layernorm": (E,),
         "self_attention.query_key_value": ((H + 2 * KV) * D, E),
         "self_attention.query_key_value.bias!": ((H + 2 * KV) * D,),
         "self_attention.dense": (E, E), "mlp.dense_h_to_4h": (2 * F, E),
         "mlp.dense_4h_to_h": (E, F)},
        {"transformer.embedding.word_embeddings": (N_VOCAB, E),
         "transformer.encoder.final_layernorm": (E,), "transformer.output_layer": (N_VOCAB, E),
         "transformer.rotary_pos_emb.inv_freq!": (8,)},
        "transformer.encoder.layers.{}",
    ),
    "arctic": model(
        "ArcticForCausalLM", {"num_local_experts": X, "num_experts_per_tok": 2},
        {**NORMS, **ATTENTION, "residual_layernorm": (E,), "residual_mlp.w1": (F, E),
         "residual_mlp.w2": (E, F), "residual_mlp.w3": (F, E), "block_sparse_moe.gate": (X, E),
         **experts("block_sparse_moe.experts", "w1", "w3", "w2")},
    ),
    "grovemoe": model(
        "GroveMoeForCausalLM", {**EXPERTS, "head_dim": D},
        {**QWEN_EXPERTS, **HEAD_NORMS, "mlp.expert_bias!": (X,),
         **experts("mlp.chunk_experts", "gate_proj", "up_proj", "down_proj", X // 2)},
    ),
    "grok1": model(
        "Grok1ForCausalLM",
        {"num_local_experts": X, "num_experts_per_tok": 2, "embedding_multiplier_scale": 78.0,
         "output_multiplier_scale": 0.5},
        {**experts("moe", "linear", "linear_v", "linear_1"),
         "multi_head_attention.query": (H * D, E), "multi_head_attention.key": (KV * D, E),
         "multi_head_attention.value": (KV * D, E), "multi_head_attention.linear": (E, H * D),
         "rms_norm": (E,), "rms_norm_1": (E,), "rms_norm_2": (E,), "rms_norm_3": (E,),
         "router": (X, E)},
        {"transformer.in_out_embed": (N_VOCAB, E), "transformer.rms_norm": (E,),
         "lm_head": (N_VOCAB, E)},
        "transformer.decoder_layer.{}",
    ),
    "grok2": model(
        "Grok1ForCausalLM",
        {"num_local_experts": X, "num_experts_per_tok": 2, "embedding_multiplier_scale": 90.5,
         "output_multiplier_scale": 0.5, "head_dim": D, "moe_intermediate_size": FX,
         "rope_type": "original", "scaling_factor": 16.0, "extrapolation_factor": 1.0,
         "attn_factor": 1.0, "beta_fast": 8, "beta_slow": 1, "attn_temperature_len": 1024,
         "original_max_position_embeddings": 512, "final_logit_softcapping": 50.0},
        {**experts("block_sparse_moe.experts", "w1", "w3", "w2"), "block_sparse_moe.gate": (X, E),
         **MLP, "pre_attn_norm": (E,), "post_attn_norm": (E,), "pre_moe_norm": (E,),
         "post_moe_norm": (E,), **ATTENTION},
    ),
    "llada": model(
        "LLaDAModelLM",
        {"d_model": E, "n_heads": H, "n_kv_heads": KV, "n_layers": N, "mlp_hidden_size": F,
         "max_sequence_length": 512},
        {"attn_norm": (E,), "ff_norm": (E,), "q_proj": (E, E), "k_proj": (KV * D, E),
         "v_proj": (KV * D, E), "attn_out": (E, E), "ff_proj": (F, E), "up_proj": (F, E),
         "ff_out": (E, F)},
        add_prefix("model.transformer.", {
            "wte": (N_VOCAB, E), "ln_f": (E,), "ff_out": (N_VOCAB, E)}),
        "model.transformer.blocks.{}",
    ),
    "llada-moe": model(
        "LLaDAMoEModelLM",
        {"num_experts": X, "num_experts_per_tok": 2, "expert_intermediate_size": FX},
        {**QWEN_EXPERTS, **HEAD_NORMS},
    ),
    "dream": model("DreamModel", {"mask_token_id": 5}),
    "rnd1": model(
        "RND1", {**EXPERTS, "mask_token_id": 5, "head_dim": D}, {**QWEN_EXPERTS, **HEAD_NORMS}
    ),
    "maincoder": model("MaincoderForCausalLM", {"head_dim": D}, {**LLAMA, **HEAD_NORMS}),
    "maple": model(
        "MapleForCausalLM", {**EXPERTS, **WINDOWS, "nope_on_global_attention": True},
        {**QWEN_EXPERTS, **HEAD_NORMS},
    ),
    "smallthinker": model(
        "SmallThinkerForCausalLM",
        {"moe_num_primary_experts": X, "moe_num_active_primary_experts": 2,
         "moe_ffn_hidden_size": FX, "sliding_window_layout": [0, 1], "sliding_window_size": 64,
         "head_dim": D},
        {**NORMS, **ATTENTION, "block_sparse_moe.primary_router": (X, E),
         **experts("block_sparse_moe.experts", "gate", "up", "down")},
    ),
    "talkie": model(
        "TalkieForCausalLM", {"head_dim": D},
        {"attn.attn_query": (E, E), "attn.attn_key": (E, E), "attn.attn_value": (E, E),
         "attn.attn_resid": (E, E), "attn.head_gain.head_g!": (H,), "attn_gain.a_g!": (1,),
         "mlp.mlp_gate": (F, E), "mlp.mlp_linear": (F, E), "mlp.mlp_resid": (E, F),
         "mlp_gain.a_g!": (1,), "embed_skip.a_g!": (1,)},
        {"model.embed": (N_VOCAB, E), "lm_head!": (N_VOCAB, E), "lm_head_gain.w_g!": (1,)},
        "model.blocks.{}",
    ),
    "spark2_5": model(
        "Spark2_5ForCausalLM",
        {**WINDOWS, **BOTH, "hidden_act": "gelu", "gate_attn_act_mode": "sigmoid",
         "headwise_attn_output_gate": True},
        {**NORMS, **MLP, "self_attn.q_k_v_proj": ((H + 2 * KV) * D, E),
         "self_attn.g_proj": (H, E), "self_attn.o_proj": (E, E)},
    ),
    "muse-glimmer": model(
        "MuseGlimmerForConditionalGeneration",
        {**WINDOWS, "qk_scale_factor": 3.87, "final_logit_softcapping": 20.0,
         "output_multiplier": 0.5},
        {**LLAMA, "self_attn.gate_proj": (H * D, E), "pre_feedforward_layernorm": (E,),
         "post_feedforward_layernorm": (E,)},
        {"model.language_model.embed_tokens": (N_VOCAB, E), "model.language_model.norm": (E,),
         "lm_head": (N_VOCAB, E), "model.vision_tower.x": (E,)},
        "model.language_model.layers.{}",
    ),
    "chameleon": model(
        "ChameleonForConditionalGeneration", {"swin_norm": True, "num_key_value_heads": H},
        {**LLAMA, "self_attn.k_proj": (E, E), "self_attn.v_proj": (E, E),
         "self_attn.q_norm": (H, D), "self_attn.k_norm": (H, D),
         "self_attn.q_norm.bias!": (H, D), "self_attn.k_norm.bias!": (H, D)},
        {**MODEL, "model.vqmodel.x": (E,)},
    ),
    "bitnet-old": model(
        "BitnetForCausalLM", {},
        {**LLAMA, "self_attn.inner_attn_ln": (E,), "mlp.ffn_layernorm": (F,)},
        {"model.embed_tokens": (N_VOCAB, E), "model.norm": (E,)},
    ),
    "deci": model(
        "DeciLMForCausalLM",
        {"num_key_value_heads_per_layer": [2, 2], "rope_scaling": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64}},
    ),
    "deci-blocks": model(
        "DeciLMForCausalLM",
        {"block_configs": [
            {"attention": {"n_heads_in_group": 2, "replace_with_linear": False},
             "ffn": {"ffn_mult": 2.25}},
            {"attention": {"n_heads_in_group": 2, "replace_with_linear": False},
             "ffn": {"ffn_mult": 1.0}}]},
    ),
    "qwen": model(
        "QWenLMHeadModel", {"layer_norm_epsilon": 1e-6, "rotary_emb_base": 10000},
        {"ln_1": (E,), "ln_2": (E,), "attn.c_attn": (3 * E, E), "attn.c_attn.bias!": (3 * E,),
         "attn.c_proj": (E, E), "mlp.w1": (F, E), "mlp.w2": (F, E), "mlp.c_proj": (E, F)},
        {"transformer.wte": (N_VOCAB, E), "transformer.ln_f": (E,), "lm_head": (N_VOCAB, E)},
        "transformer.h.{}",
    ),
    "qwen2vl": model(
        "Qwen2VLForConditionalGeneration", SECTIONS,
        {**LLAMA, "self_attn.q_proj.bias!": (H * D,)}, {**MODEL, "visual.blocks.0.x": (E,)},
    ),
    "qwen25omni": model(
        "Qwen2_5OmniModel", SECTIONS, LLAMA,
        {**add_prefix("thinker.", MODEL), "thinker.visual.x": (E,), "talker.x": (E,),
         "thinker.audio_tower.x": (E,)},
        "thinker.model.layers.{}",
    ),
    "qwen3vl": model(
        "Qwen3VLForConditionalGeneration", {**SECTIONS, **VISION, "head_dim": D},
        {**LLAMA, **HEAD_NORMS},
        {"model.language_model.embed_tokens": (N_VOCAB, E), "model.language_model.norm": (E,),
         "lm_head": (N_VOCAB, E), "model.visual.x": (E,)},
        "model.language_model.layers.{}",
    ),
    "qwen3vlmoe": model(
        "Qwen3VLMoeForConditionalGeneration", {**SECTIONS, **VISION, **EXPERTS, "head_dim": D},
        {**NORMS, **ATTENTION, **HEAD_NORMS, "mlp.gate": (X, E),
         "mlp.experts.gate_up_proj!": (X, E, 2 * FX), "mlp.experts.down_proj!": (X, FX, E)},
    ),
    "qwen3omni": model(
        "Qwen3OmniMoeForConditionalGeneration", {**SECTIONS, **EXPERTS, "head_dim": D},
        {**QWEN_EXPERTS, **HEAD_NORMS}, add_prefix("thinker.", MODEL), "thinker.model.layers.{}",
    ),
    "qwen3asr": model(
        "Qwen3ASRForConditionalGeneration", {**SECTIONS, "head_dim": D}, {**LLAMA, **HEAD_NORMS},
        add_prefix("thinker.", MODEL), "thinker.model.layers.{}",
    ),
    "qwen4exp": model(
        "Qwen4ExpForCausalLM",
        {**DELTA, **EXPERTS, "head_dim": D, "shared_expert_intermediate_size": FX, "hc_count": 2,
         "hc_lowrank": 8, "indexer_n_heads": 2, "indexer_head_dim": 8, "indexer_budget": 32,
         "indexer_compress_ratio": 4, "ple_layer_ids": [1], "ngram_size": 3,
         "heads_per_ngram": 2, "ple_conv_kernel_size": 4, "eos_token_id": [1, 2],
         "image_token_id": 7, "split_ngram_parts": 2, "layer_types": ["full_attention"] * 2},
        {**ATTENTION, **HEAD_NORMS, "mlp.gate": (X, E), "mlp.shared_expert.gate_proj": (FX, E),
         "mlp.shared_expert.up_proj": (FX, E), "mlp.shared_expert.down_proj": (E, FX),
         "mlp.shared_expert_gate": (1, E),
         **experts("mlp.experts", "gate_proj", "up_proj", "down_proj"),
         "self_attn.indexer.index_qk_proj": (24, E), "self_attn.indexer.q_layernorm": (8,),
         "self_attn.indexer.k_layernorm": (8,),
         **add_prefix("attn_hyper_connection.", {
             "hc_norm": (2 * E,), "input_mix_weight_down": (8, 2 * E),
             "input_mix_weight_up": (E, 8), "block_inject_weight!": (2, E)}),
         **add_prefix("mlp_hyper_connection.", {
             "hc_norm": (2 * E,), "input_mix_weight_down": (8, 2 * E),
             "input_mix_weight_up": (E, 8), "block_inject_weight!": (2, E)})},
        {"model.embed_tokens": (N_VOCAB, E), "lm_head": (N_VOCAB, E),
         "model.hyper_connection_mixer.hc_norm": (2 * E,),
         "model.hyper_connection_mixer.input_mix_weight_down": (8, 2 * E),
         "model.hyper_connection_mixer.input_mix_weight_up": (E, 8),
         **add_prefix("model.layers.0.ple.", {
             "key_proj": (E, 16), "value_proj": (E, 16), "norm_key": (E,), "norm_query": (E,),
             "norm_conv": (E,), "conv1d": (E, 1, 4),
             "ple_embedding.layer_multipliers!": (3,), "ple_embedding.ngram_heads_offsets!": (4,),
             "ple_embedding.ngram_heads_vocab_sizes!": (4,),
             "ple_embedding.ngram_embedding.shard_1": (10, 16),
             "ple_embedding.ngram_embedding.shard_0": (12, 16)})},
    ),
    "eagle3": model(
        "LlamaForCausalLMEagle3",
        {"num_hidden_layers": 1, "draft_vocab_size": 32, "norm_before_residual": True},
        {},
        {"fc": (E, 3 * E), "norm": (E,), "lm_head": (32, E), "d2t!": (32,), "t2d!": (N_VOCAB,),
         "midlayer.hidden_norm": (E,), **add_prefix("midlayer.", {**LLAMA, **{
             n: (s[0], 2 * E) for n, s in ATTENTION.items() if "o_proj" not in n}})},
    ),
    "eagle3-speculator": model(
        "Eagle3Speculator",
        {"num_hidden_layers": None, "draft_vocab_size": 32, "target_hidden_size": E,
         "transformer_layer_config": {**SIZES, "num_hidden_layers": 1}},
        {},
        {"fc": (E, 3 * E), "norm": (E,), "lm_head": (32, E), "d2t!": (32,), "input_norm": (E,),
         "embed_tokens": (N_VOCAB, E), "layers.0.hidden_norm": (E,),
         **add_prefix("layers.0.", LLAMA)},
    ),
    "dflash": model(
        "DFlashDraftModel",
        {**WINDOWS, "block_size": 8, "dflash_config": {
            "mask_token_id": 5, "target_layer_ids": [1, 3], "use_swa": True}},
        {**LLAMA, **HEAD_NORMS}, {"fc": (E, 2 * E), "hidden_norm": (E,), "norm": (E,)},
        "layers.{}",
    ),
    "dflash2": model(
        "DFlash2DraftModel",
        {"head_dim": D, "is_causal": False, "rope_is_neox_style": False, "dflash_config": {
            "mask_token_id": 5, "target_layer_ids": [1, 3], "conv_kernel_size": 3,
            "conv_group_size": 4, "selector_rank": 8, "selector_top_k": 4, "block_size": 8,
            "output_multiplier": 0.5, "final_logit_softcapping": 20, "causal": False,
            "input_embedding_scale": 2.0, "attention_value_scale": 0.5}},
        {**LLAMA, **HEAD_NORMS, "self_attn.sinks!": (H,), "attention_conv.base_kernel!": (E, 3),
         "attention_conv.kernel_projection": (24, E), "mlp_conv.base_kernel!": (E, 3),
         "mlp_conv.kernel_projection": (24, E)},
        {"fc": (E, 2 * E), "hidden_norm": (E,), "norm": (E,), "lm_head": (N_VOCAB, E),
         "embed_tokens": (N_VOCAB, E), "candidate_selector.predecessor_codebook!": (N_VOCAB, 8),
         "candidate_selector.successor_codebook!": (N_VOCAB, 8),
         "candidate_selector.hidden_projection": (8, E)},
        "layers.{}",
    ),
    "dspark": model(
        "Qwen3DSparkModel",
        {"head_dim": D, "mask_token_id": 5, "target_layer_ids": [1, 3], "block_size": 7},
        {**LLAMA, **HEAD_NORMS},
        {"fc": (E, 2 * E), "hidden_norm": (E,), "norm": (E,), "lm_head": (N_VOCAB, E),
         "markov_head.markov_w1": (N_VOCAB, 8), "markov_head.markov_w2": (N_VOCAB, 8),
         "confidence_head.proj": (1, E), "confidence_head.proj.bias!": (1,)},
        "layers.{}",
    ),
    "dspark-speculator": model(
        "DSparkSpeculator",
        {"draft_vocab_size": 32, "aux_hidden_state_layer_ids": [2, 4], "mask_token_id": 5,
         "transformer_layer_config": {**SIZES, "head_dim": D}},
        {**LLAMA, **HEAD_NORMS},
        {"fc": (E, 2 * E), "hidden_norm": (E,), "norm": (E,), "lm_head": (32, E),
         "d2t!": (32,), "t2d!": (N_VOCAB,), "markov_head.markov_w1": (N_VOCAB, 8),
         "markov_head.markov_w2": (32, 8)},
        "layers.{}",
    ),
    "muse-assistant": model(
        "MuseGlimmerAssistantModel",
        {**WINDOWS, "block_size": 8, "target_layer_ids": [1, 3], "mask_token_id": 5},
        {**LLAMA, **HEAD_NORMS},
        {"encoder.fc": (E, 2 * E), "encoder.output_norm_enc": (E,), "norm": (E,)}, "layers.{}",
    ),
    "mistral-params": params({"rope_theta": 1e6}),
    "mistral3-params": params({
        "llama_4_scaling": {"beta": 0.1, "original_max_position_embeddings": 64},
        "yarn": {"factor": 16, "beta": 32, "alpha": 1, "apply_scale": False,
                 "original_max_position_embeddings": 64}}),
    "wavtokenizer": model(
        "WavTokenizerDec",
        {"n_embd_features": 32, "n_ff": F, "group_norm_epsilon": 1e-6, "group_norm_groups": 8,
         "posnet": {"n_embd": E, "n_layer": 2}, "convnext": {"n_embd": E, "n_layer": 2},
         "layer_norm_epsilon": 1e-6},
        {},
        {"backbone.embed": (E, 32, 7), "backbone.embed.bias!": (E,), "backbone.norm": (E,),
         "backbone.final_layer_norm": (E,), "head.out": (F, E),
         "backbone.convnext.0.dwconv": (E, 1, 7), "backbone.convnext.0.gamma": (E,),
         "backbone.convnext.0.norm": (E,), "backbone.convnext.0.pwconv1": (F, E),
         "backbone.convnext.0.pwconv2": (E, F), "backbone.posnet.0.conv1": (E, E, 3),
         "backbone.posnet.0.norm1": (E, 1), "backbone.posnet.0.norm2": (E, 1),
         "backbone.posnet.1.norm": (E, 1), "backbone.posnet.1.q": (E, E, 1),
         "quantizer.codebook.inited!": (1,)},
    ),
}  # fmt: skip

CHECKPOINTS |= media_checkpoints.CHECKPOINTS | sound_checkpoints.CHECKPOINTS
TARGET = {**SIZES, "num_hidden_layers": 8, "architectures": ["Qwen3ForCausalLM"]}
TARGETS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("eagle3", "eagle3-speculator", "dspark", "dspark-speculator"), TARGET),
    "dflash": {**TARGET, **SECTIONS},
}


def main(llama_cpp: str, out: str, *names: str) -> int:
    from dev.record import further_checkpoints as further

    logging.disable(logging.WARNING)
    found, targets = CHECKPOINTS | further.CHECKPOINTS, TARGETS | further.TARGETS
    sys.path[:0] = [llama_cpp, f"{llama_cpp}/gguf-py"]
    for name in names or found:
        folder = Path(out) / name
        shutil.rmtree(folder, ignore_errors=True)
        write_folder(folder, *found[name], target=targets.get(name))
        try:
            convert(folder, Path(out) / f"{name}.gguf")
            said = "made"
        except Exception as e:
            said = f"{type(e).__name__}: {e}".splitlines()[0][:300]
        print(name, said, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""Further tiny checkpoints: models of few users, and generators of speech. See
dev/record/handmade_checkpoints.py."""

from __future__ import annotations

from typing import Any

from dev.record.handmade_checkpoints import (
    FX,
    LLAMA,
    MLP,
    MODEL,
    NORMS,
    ROPE,
    TARGET,
    D,
    E,
    F,
    H,
    X,
    add_prefix,
    experts,
    model,
    params,
)
from dev.record.media_checkpoints import (
    FILES,
    TOWER,
    VISION,
    checkpoint,
    layers,
    linear,
    nest,
    norms,
    qkv,
    swiglu,
    whisper,
)
from dev.record.tiny_checkpoints import N_VOCAB

LATENT = {"q_lora_rank": 24, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
          "v_head_dim": 12, "num_key_value_heads": H}  # fmt: skip
MLA = {"q_a_proj": (24, E), "q_a_layernorm": (24,), "q_b_proj": (H * 24, 24),
       "kv_a_proj_with_mqa": (40, E), "kv_a_layernorm": (32,), "kv_b_proj": (H * 28, 32),
       "o_proj": (E, H * 12)}  # fmt: skip
YARN = {"factor": 16, "beta": 32, "alpha": 1, "apply_scale": False,
        "original_max_position_embeddings": 64}  # fmt: skip
MIXTRAL = {**NORMS, "block_sparse_moe.gate": (X, E),
           **experts("block_sparse_moe.experts", "w1", "w3", "w2")}  # fmt: skip
PARTS = ("full_attention", "linear_attention", "mlp")
WEIGHTED = {"attention_norm": (E,), "ffn_norm": (E,)}
SPEECH = "speech_tokenizer/decoder"
CODER = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "rms_norm_eps": 1e-6,
         "num_attention_heads": 2, "num_key_value_heads": 1}  # fmt: skip
TALKER = {
    **CODER, "vocab_size": 1100, "text_vocab_size": 24, "codec_eos_token_id": 1090,
    "hidden_act": "relu", "head_dim": 16, "max_position_embeddings": 256, "rope_theta": 1e4,
    "code_predictor_config": CODER,
}  # fmt: skip
QWEN_LAYER = {
    "input_layernorm": (32,), "post_attention_layernorm": (32,), "self_attn.q_proj": (32, 32),
    "self_attn.k_proj": (16, 32), "self_attn.v_proj": (16, 32), "self_attn.o_proj": (32, 32),
    "self_attn.q_norm": (16,), "self_attn.k_norm": (16,), "mlp.gate_proj": (48, 32),
    "mlp.up_proj": (48, 32), "mlp.down_proj": (32, 48),
}  # fmt: skip


def conv(name: str, *shape: int) -> dict[str, Any]:
    return {name: shape, f"{name}.bias!": (shape[0],)}


def snake(name: str) -> dict[str, Any]:
    return {f"{name}.{part}!": (8,) for part in ("alpha", "beta")}


def codebooks(kind: str, n: int) -> dict[str, Any]:
    """Return the tensors of a residual quantizer."""
    made: dict[str, Any] = {"input_proj": (4, 8, 1), "output_proj": (8, 4, 1)}
    for i in range(n):
        path = f"vq.layers.{i}._codebook"
        made |= {f"{path}.embedding_sum!": (6, 4), f"{path}.cluster_usage!": (6,)}
    return nest(f"{SPEECH}.quantizer.rvq_{kind}", made)


def generator() -> dict[str, Any]:
    """Return the tensors of Qwen3-TTS's generator of sound."""
    layer = {k: s for k, s in QWEN_LAYER.items() if "_norm" not in k or "layernorm" in k}
    scales = {"self_attn_layer_scale.scale!": (32,), "mlp_layer_scale.scale!": (32,)}
    made = {
        **codebooks("first", 1), **codebooks("rest", 15),
        **conv(f"{SPEECH}.pre_conv.conv", 8, 8, 3),
        **nest(f"{SPEECH}.pre_transformer", {
            **linear("input_proj"), **linear("output_proj"), "norm": (32,),
            **layers("layers.{}", {**layer, **scales}, 2)}),
        **nest(f"{SPEECH}.upsample.0", {
            **conv("0.conv", 8, 8, 2), **conv("1.dwconv.conv", 8, 1, 7), **norms("1.norm", n=8),
            **linear("1.pwconv1", 8, 8), **linear("1.pwconv2", 8, 8), "1.gamma!": (8,)}),
        **conv(f"{SPEECH}.decoder.0.conv", 8, 8, 7), **snake(f"{SPEECH}.decoder.5"),
        **conv(f"{SPEECH}.decoder.6.conv", 1, 8, 7),
    }  # fmt: skip
    for i in range(1, 5):
        path = f"{SPEECH}.decoder.{i}.block"
        made |= {**snake(f"{path}.0"), **conv(f"{path}.1.conv", 8, 8, 4)}
        for j in range(2, 5):
            for k in (1, 2):
                made |= snake(f"{path}.{j}.act{k}") | conv(f"{path}.{j}.conv{k}.conv", 8, 8, 3)
    return made


TTS = {
    **nest("talker.code_predictor", {
        "model.norm": (32,), **linear("small_to_mtp_projection"),
        **layers("model.layers.{}", QWEN_LAYER, 2),
        **{f"{name}.{i}": (16, 32) for name in ("model.codec_embedding", "lm_head")
           for i in range(15)}}),
    "talker.model.codec_embedding": (1100, 32),
    **nest("talker", {
        "model.text_embedding": (24, 32), "model.norm": (32,), "codec_head": (1100, 32),
        **linear("text_projection.linear_fc1"), **linear("text_projection.linear_fc2"),
        **layers("model.layers.{}", QWEN_LAYER, 2)}),
    **nest("speaker_encoder", {
        **conv("blocks.0.conv", 8, 8, 5), **conv("mfa.conv", 8, 24, 1),
        **conv("asp.conv", 8, 4, 1), **conv("asp.tdnn.conv", 4, 8, 1), **conv("fc", 32, 8, 1),
        **{k: s for i in range(1, 4) for k, s in nest(f"blocks.{i}", {
            **conv("tdnn1.conv", 8, 8, 1), **conv("tdnn2.conv", 8, 8, 1),
            **conv("se_block.conv1", 4, 8, 1), **conv("se_block.conv2", 8, 4, 1),
            **conv("res2net_block.blocks.0.conv", 4, 4, 3),
            **conv("res2net_block.blocks.1.conv", 4, 4, 3)}).items()}}),
    **generator(),
}  # fmt: skip
TTS_CONFIG = {"talker_config": TALKER, "speaker_encoder_config": {"mel_dim": 8}}
TTS_FILES = {"speech_tokenizer/config.json": {"decoder_config": {
    "num_hidden_layers": 2, "upsampling_ratios": [2], "upsample_rates": [2, 2, 2, 2]}}}  # fmt: skip

MIMI_LAYER = {**norms("norm1", "norm2", n=64), "self_attn.in_proj": (192, 64),
              "self_attn.out_proj": (64, 64), "linear1": (96, 64), "linear2": (64, 96)}  # fmt: skip
SCALED = {**MIMI_LAYER, "layer_scale_1.scale!": (64,), "layer_scale_2.scale!": (64,)}
PERCEPTRON = {**linear("mlp.0", 8, 8), **linear("mlp.2", 8, 8)}
SEANET = {
    **conv("encoder.model.0.conv", 4, 1, 7), **conv("encoder.model.11.conv", 8, 4, 3),
    **conv("decoder.model.0.conv", 4, 8, 7), **conv("decoder.model.11.conv", 1, 4, 3),
    **{k: s for i in range(3) for kind, at, to in (("encoder", 1, 3), ("decoder", 3, 2))
       for k, s in {
           **conv(f"{kind}.model.{at + 3 * i}.block.1.conv", 2, 4, 3),
           **conv(f"{kind}.model.{at + 3 * i}.block.3.conv", 4, 2, 1),
           **conv(f"{kind}.model.{to + 3 * i}.convtr", 4, 4, 4),
       }.items()},
}  # fmt: skip
POCKET = {
    **nest("flow_lm", {
        "conditioner.embed": (24, 64), "bos_emb!": (8,), "bos_before_voice!": (1, 1, 64),
        "input_linear": (64, 8), "speaker_proj_weight!": (64, 8), "emb_mean!": (8,),
        "emb_std!": (8,), **norms("out_norm", n=64), **linear("out_eos", 1, 64),
        **layers("transformer.layers.{}", MIMI_LAYER, 2),
        **nest("flow_net", {
            **linear("input_proj", 8, 8), **linear("cond_embed", 8, 64),
            **linear("final_layer.linear", 8, 8), **linear("final_layer.adaLN_modulation.1", 16, 8),
            **{k: s for i in range(2) for k, s in nest(f"time_embed.{i}", {
                "freqs!": (4,), **PERCEPTRON, "mlp.3.alpha!": (8,)}).items()},
            **{k: s for i in range(2) for k, s in nest(f"res_blocks.{i}", {
                **norms("in_ln", n=8), **PERCEPTRON,
                **linear("adaLN_modulation.1", 24, 8)}).items()}})}),
    **nest("mimi", {
        **SEANET, "downsample.conv.conv": (8, 8, 4), "upsample.convtr.convtr": (8, 1, 4),
        "quantizer.output_proj": (8, 4, 1),
        **layers("encoder_transformer.transformer.layers.{}", SCALED, 2),
        **layers("decoder_transformer.transformer.layers.{}", SCALED, 2)}),
}  # fmt: skip
SOUND = {"d_model": 32, "encoder_layers": 3, "encoder_attention_heads": 2, "encoder_ffn_dim": 48,
         "n_mels": 8, "hybrid_attention": True, "swa_per_block": 2,
         "encoder_attn_window_size": [32, 0]}  # fmt: skip
LOCAL = {"input_layernorm": (32,), "post_attention_layernorm": (32,),
         **{f"self_attn.{p}_proj": (32, 32) for p in "qkvo"},
         **swiglu("mlp", "gate_proj", "up_proj", "down_proj")}  # fmt: skip
TOKENIZER = "audio_tokenizer/encoder"
MIMO = {
    "visual.patch_embed.proj": (32, 3, 2, 8, 8), **norms("visual.merger.ln_q"),
    **linear("visual.merger.mlp.0", 48, 48), **linear("visual.merger.mlp.2", 64, 48),
    **layers("visual.blocks.{}", {
        "norm1": (32,), "norm2": (32,), **qkv("attn"), "attn.sinks!": (2,),
        **swiglu("mlp", "gate_proj", "up_proj", "down_proj")}),
    **{f"speech_embeddings.{i}": (12, 32) for i in range(3)},
    **layers("audio_encoder.input_local_transformer.layers.{}", LOCAL, 2),
    "audio_encoder.input_local_transformer.norm": (32,),
    "audio_encoder.projection.mlp.0": (48, 64), "audio_encoder.projection.mlp.2": (64, 48),
    "model.layers.0.x": (64,),
    **{k: s for k, s in whisper(TOKENIZER).items() if "embed_positions" not in k},
    f"{TOKENIZER}.down_sample_layer.0": (32, 32, 2), **norms(f"{TOKENIZER}.down_sample_norm"),
    **{f"{TOKENIZER}.quantizer.vq.layers.{i}._codebook.{part}!": shape
       for i in range(3) for part, shape in {
           "embed": (12 - 4 * i, 32), "cluster_size": (12 - 4 * i,), "embed_avg": (12 - 4 * i, 32),
           "inited": (1,)}.items()},
    "audio_tokenizer/decoder.x": (4,),
}  # fmt: skip

CHECKPOINTS: dict[str, tuple[dict[str, Any], ...]] = {
    "baichuan": model("BaichuanForCausalLM", {"num_key_value_heads": None}, {
        **NORMS, **MLP, "self_attn.W_pack": (3 * E, E), "self_attn.o_proj": (E, E)}),
    "bitnet": model("BitnetForCausalLM", {}, {
        **LLAMA, "self_attn.inner_attn_ln": (E,), "mlp.ffn_layernorm": (F,)},
        {k: s for k, s in MODEL.items() if k != "lm_head"}),
    "minimax-text01": model("MiniMaxText01ForCausalLM", {
        "num_local_experts": X, "num_experts_per_tok": 2, "rotary_dim": D, "head_dim": D,
        **{f"layernorm_{part}_{kind}": value for part in PARTS
           for kind, value in (("alpha", 3.5), ("beta", 1.0))}}, {
        **MIXTRAL, "self_attn.norm": (E,), "self_attn.qkv_proj": (3 * E, E),
        "self_attn.out_proj": (E, E), "self_attn.output_gate": (E, E)}),
    "mistral4": model("Mistral3ForConditionalGeneration", {
        **LATENT, "model_type": "mistral4", "head_dim": 24, "n_routed_experts": X,
        "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": FX,
        "first_k_dense_replace": 0, "norm_topk_prob": True, "routed_scaling_factor": 1.0,
        "n_group": 1, "topk_group": 1,
        "rope_parameters": {**ROPE, "rope_type": "yarn", "factor": 32, "mscale_all_dim": 1.0,
                            "original_max_position_embeddings": 64}}, {
        **NORMS, **add_prefix("self_attn.", MLA), "mlp.gate": (X, E),
        "mlp.experts.gate_up_proj!": (X, 2 * FX, E), "mlp.experts.down_proj!": (X, E, FX),
        **add_prefix("mlp.shared_experts.", {
            "gate_proj": (FX, E), "up_proj": (FX, E), "down_proj": (E, FX)})}),
    "mistral-moe-params": (
        {**params({})[0], **{k: v for k, v in LATENT.items() if "key_value" not in k},
         "n_kv_heads": H, "rope_theta": 1e4, "yarn": YARN, "head_dim": None,
         "llama_4_scaling": {"beta": 0.1}, "moe": {
             "first_k_dense_replace": 0, "num_experts_per_tok": 2, "num_experts": X,
             "expert_hidden_dim": FX, "routed_scale": 1.0, "num_shared_experts": 1,
             "num_expert_groups": 1, "num_expert_groups_per_tok": 1, "route_every_n": 1}},
        model("", {}, {
            **WEIGHTED, "attention.wq_a": (24, E), "attention.q_a_norm": (24,),
            "attention.wq_b": (H * 24, 24), "attention.wkv_a_with_mqa": (40, E),
            "attention.kv_a_norm": (32,), "attention.wkv_b": (H * 28, 32),
            "attention.wo": (E, H * 12), "gate": (X, E), **experts("experts", "w1", "w3", "w2"),
            **add_prefix("shared_experts.", {"w1": (FX, E), "w2": (E, FX), "w3": (FX, E)})},
            {"tok_embeddings": (N_VOCAB, E), "norm": (E,), "output": (N_VOCAB, E)}, "layers.{}")[1],
    ),
    "mistral-params-fp8": (
        {**params({"rope_theta": 1e6})[0],
         "quantization": {"qformat_weight": "fp8_e4m3", "qscheme_act": "TENSOR"}},
        {k: v for name, (_, shape) in params({})[1].items() for k, v in (
            {name: ["F8_E4M3", shape], name.replace("weight", "qscale_weight"): ["F32", []],
             name.replace("weight", "qscale_act"): ["F32", []]}
            if len(shape) > 1 and "layers" in name else {name: ["BF16", shape]}).items()},
    ),
    "gemma4-dspark": model("Gemma4DSparkModel", {
        "attention_k_eq_v": True, "layer_types": ["full_attention"] * 2, "head_dim": D,
        "global_head_dim": 2 * D, "num_global_key_value_heads": 1, "block_size": 7,
        "mask_token_id": 5, "target_layer_ids": [1, 3], "rope_theta": None, "rope_parameters": {
            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                               "rope_theta": 1e6}}}, {
        **NORMS, **MLP, "pre_feedforward_layernorm": (E,), "post_feedforward_layernorm": (E,),
        "self_attn.q_proj": (H * 2 * D, E), "self_attn.k_proj": (2 * D, E),
        "self_attn.o_proj": (E, H * 2 * D), "self_attn.q_norm": (2 * D,),
        "self_attn.k_norm": (2 * D,), "layer_scalar!": (1,)},
        {"fc": (E, 2 * E), "hidden_norm": (E,), "norm": (E,), "lm_head": (N_VOCAB, E),
         "markov_head.markov_w1": (N_VOCAB, 8), "markov_head.markov_w2": (N_VOCAB, 8),
         "confidence_proj": (1, E)}, "layers.{}"),
    "granite-speech": model("GraniteSpeechForConditionalGeneration", {
        "text_config": {"architectures": ["GraniteForCausalLM"], "embedding_multiplier": 12.0,
                        "logits_scaling": 8.0, "residual_multiplier": 0.2,
                        "attention_multiplier": 0.1}}, LLAMA, {
        **add_prefix("language_model.", MODEL), "encoder.input_linear": (E, E),
        "projector.query!": (1, 3, E)}, "language_model.model.layers.{}"),
    "qwen3tts": checkpoint("Qwen3TTSForConditionalGeneration", TTS_CONFIG, TTS, TTS_FILES),
    "mmproj-qwen3tts": checkpoint("Qwen3TTSForConditionalGeneration", TTS_CONFIG, TTS, TTS_FILES),
    "pockettts": ({}, checkpoint("", {}, POCKET)[1], {}),
    "mmproj-pockettts": ({}, checkpoint("", {}, POCKET)[1], {}),
    "mmproj-mimo2": checkpoint("MiMoV2ForCausalLM", {
        "vision_config": {**VISION, **TOWER, "num_heads": 2, "num_key_value_heads": 2,
                          "qk_channels": 16, "spatial_merge_size": 2, "use_sink": True,
                          "visual_token_window_size": 16, "vit_window_attn_types": [-1, 0, 1]},
        "audio_config": {"audio_channels": 3, "input_local_layers": 2, "group_size": 4}},
        MIMO, {**FILES, "audio_tokenizer/config.json": SOUND}),
}  # fmt: skip
TARGETS: dict[str, dict[str, Any]] = {"gemma4-dspark": TARGET}

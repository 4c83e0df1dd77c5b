"""Models with encoders of images and sound. Only their encoders are converted (mmproj)."""

from __future__ import annotations

from typing import Any

from dev.compare.transformers_models.embeddings import GEMMA4

TEXT = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 1024,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2]}
SECTIONS = {**TEXT, "rope_parameters": MROPE}
EXPERTS = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16}
VISION = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
}
TOWER = {"depth": 3, "num_heads": 2, "patch_size": 8, "intermediate_size": 48}
QWEN2 = {**TOWER, "hidden_size": 32, "out_hidden_size": 64, "fullatt_block_indexes": [0, 1, 2]}
QWEN3 = {**QWEN2, "num_position_embeddings": 16, "deepstack_visual_indexes": [1]}
GLM = {**QWEN2, "image_size": 32}
LFM2 = {**TEXT, "layer_types": ["full_attention"]}
DELTA = {
    **SECTIONS,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "layer_types": ["full_attention"],
}
AUDIO = {
    "d_model": 32,
    "encoder_layers": 3,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 48,
    "num_mel_bins": 8,
    "output_dim": 64,
}
WHISPER = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "num_mel_bins": 8,
}
QFORMER = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "cross_attention_frequency": 1,
    "encoder_hidden_size": 32,
}
SPEECH = {
    "text_config": {**TEXT, "model_type": "granite"},
    "projector_config": {**QFORMER, "model_type": "blip_2_qformer"},
    "encoder_config": {"input_dim": 8, "num_layers": 2, "hidden_dim": 32, "feedforward_mult": 2,
                       "num_heads": 2, "dim_head": 16, "output_dim": 12, "context_size": 8,
                       "max_pos_emb": 16, "conv_kernel_size": 3},
    "has_lora_adapter": False, "downsample_rate": 2, "window_size": 4,
}  # fmt: skip
PIXTRAL = {**VISION, "head_dim": 16, "hidden_act": "silu", "model_type": "pixtral"}

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "mmproj-gemma3": (
        "Gemma3Config", {"text_config": TEXT, "vision_config": VISION, "mm_tokens_per_image": 4},
    ),
    "mmproj-gemma4": (
        "Gemma4Config",
        {"text_config": {**TEXT, **GEMMA4, "num_hidden_layers": 4},
         "vision_config": {**VISION, "num_key_value_heads": 2, "head_dim": 16, "patch_size": 4,
                           "position_embedding_size": 16, "use_clipped_linears": True,
                           "standardize": True},
         "audio_config": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
                          "subsampling_conv_channels": [8, 4], "output_proj_dims": 24}},
    ),
    "mmproj-gemma4-unified": (
        "Gemma4UnifiedConfig",
        {"text_config": {**TEXT, **GEMMA4, "num_hidden_layers": 4},
         "vision_config": {"patch_size": 2, "pooling_kernel_size": 2, "mm_embed_dim": 32,
                           "mm_posemb_size": 16, "output_proj_dims": 32},
         "audio_config": {"audio_embed_dim": 24}},
    ),
    "mmproj-llama4": (
        "Llama4Config",
        {"text_config": {**TEXT, "intermediate_size_mlp": 96, "num_local_experts": 2,
                         "interleave_moe_layer_step": 1},
         "vision_config": {**VISION, "intermediate_size": 128, "vision_output_dim": 40,
                           "projector_input_dim": 40, "projector_output_dim": 40}},
    ),
    "mmproj-pixtral": (
        "LlavaConfig",
        {"text_config": {**TEXT, "model_type": "mistral"}, "vision_config": PIXTRAL,
         "image_seq_length": 1},
    ),
    "mmproj-mistral3": (
        "Mistral3Config", {"text_config": {**TEXT, "model_type": "mistral"},
                           "vision_config": PIXTRAL, "spatial_merge_size": 2},
    ),
    "mmproj-lighton": (
        "LightOnOcrConfig", {"text_config": {**TEXT, "model_type": "qwen3"},
                             "vision_config": PIXTRAL, "spatial_merge_size": 2},
    ),
    "mmproj-qwen2vl": (
        "Qwen2VLConfig",
        {"text_config": SECTIONS,
         "vision_config": {**TOWER, "embed_dim": 32, "hidden_size": 64, "mlp_ratio": 2}},
    ),
    "mmproj-qwen25vl": ("Qwen2_5_VLConfig", {"text_config": SECTIONS, "vision_config": QWEN2}),
    "mmproj-qwen3vl": ("Qwen3VLConfig", {"text_config": SECTIONS, "vision_config": QWEN3}),
    "mmproj-qwen35": (
        "Qwen3_5Config",
        {"text_config": DELTA, "vision_config": {**QWEN2, "num_position_embeddings": 16}},
    ),
    "mmproj-glm4v": ("Glm4vConfig", {"text_config": SECTIONS, "vision_config": GLM}),
    "mmproj-glm-ocr": ("GlmOcrConfig", {"text_config": SECTIONS, "vision_config": GLM}),
    "mmproj-exaone45": (
        "Exaone4_5_Config",
        {"text_config": {**TEXT, "model_type": "exaone4"},
         "vision_config": {**QWEN2, "num_key_value_heads": 1}},
    ),
    "mmproj-idefics3": ("Idefics3Config", {"text_config": TEXT, "vision_config": VISION}),
    "mmproj-smolvlm": ("SmolVLMConfig", {"text_config": TEXT, "vision_config": VISION}),
    "mmproj-lfm2vl": (
        "Lfm2VlConfig",
        {"text_config": LFM2, "vision_config": {**VISION, "patch_size": 16, "num_patches": 4,
                                                "vision_use_head": False}},
    ),
    "mmproj-janus": (
        "JanusConfig",
        {"text_config": TEXT,
         "vision_config": {**VISION, "mlp_ratio": 1.5, "projection_dim": 64},
         "vq_config": {"embed_dim": 8, "num_embeddings": 8, "base_channels": 32,
                       "channel_multiplier": [1], "num_res_blocks": 1, "latent_channels": 8,
                       "projection_dim": 16, "image_token_embed_dim": 16, "num_patches": 2}},
    ),
    "mmproj-paddleocr": (
        "PaddleOCRVLConfig",
        {"text_config": SECTIONS,
         "vision_config": {**VISION, "architectures": ["PaddleOCRVisionModel"]}},
    ),
    "mmproj-granite4-vision": (
        "Granite4VisionConfig",
        {"text_config": {**TEXT, "num_hidden_layers": 6},
         "vision_config": {**VISION, "hidden_size": 64, "num_hidden_layers": 6,
                           "model_type": "siglip_vision_model"},
         "qformer_config": {**QFORMER, "hidden_size": 64, "model_type": "blip_2_qformer"},
         "downsample_rate": "2/4", "deepstack_layer_map": [[0, 0], [-1, 5]],
         "spatial_target_layers": [1, 2, 3, 4], "image_grid_pinpoints": [[32, 64], [64, 32]]},
    ),
    "mmproj-minicpmv46": (
        "MiniCPMV4_6Config",
        {"text_config": {**DELTA, "model_type": "qwen3_5_text"},
         "vision_config": {**VISION, "insert_layer_id": 1}},
    ),
    "mmproj-minimax-m3": (
        "MiniMaxM3VLConfig",
        {"text_config": {**TEXT, "num_local_experts": 2, "num_experts_per_tok": 1},
         "vision_config": {**VISION, "hidden_size": 160}},
    ),
    "mmproj-hunyuan-vl": (
        "HunYuanVLConfig",
        {"text_config": TEXT, "vision_config": {**VISION, "num_key_value_heads": 2,
                                                "max_image_size": 32, "out_hidden_size": 64,
                                                "text_hidden_size": 64}},
    ),
    "mmproj-qwen2audio": (
        "Qwen2AudioConfig", {"audio_config": AUDIO, "text_config": {**TEXT, "model_type": "qwen2"}},
    ),
    "mmproj-voxtral": (
        "VoxtralConfig",
        {"audio_config": {**WHISPER, "intermediate_size": 128}, "text_config": TEXT},
    ),
    "mmproj-audioflamingo3": (
        "AudioFlamingo3Config",
        {"audio_config": WHISPER, "text_config": {**TEXT, "model_type": "qwen2"}},
    ),
    "mmproj-granite-speech": ("GraniteSpeechConfig", SPEECH),
    "mmproj-granite-speech-plus": (
        "GraniteSpeechPlusConfig",
        {**SPEECH, "encoder_config": {**SPEECH["encoder_config"], "cat_hidden_layers": [1]},
         "projector_config": {**SPEECH["projector_config"], "encoder_hidden_size": 64}},
    ),
    "mmproj-muse-glimmer": (
        "MuseGlimmerConfig",
        {"text_config": TEXT, "out_hidden_size": 64, "projector_hidden_size": 48,
         "vision_config": {**VISION, "pos_emb_height": 4, "pos_emb_width": 4,
                           "layer_types": ["window_attention", *["full_attention"] * 2]}},
    ),
}  # fmt: skip
CLASSES = {
    name: f"{kind.removesuffix('Config')}ForConditionalGeneration"
    for name, (kind, _) in MODELS.items()
}
CLASSES |= {"mmproj-minimax-m3": "MiniMaxM3SparseForConditionalGeneration"}
# Names in the authors' folders, of the model's class and of tensors
CONVERTER = {"mmproj-lighton": {"architectures": ["LightOnOCRForConditionalGeneration"]}}
NAMES = {
    "mmproj-gemma3": {"vision_tower.": "vision_tower.vision_model."},
    "mmproj-lfm2vl": {"vision_tower.": "vision_tower.vision_model."},
    "mmproj-granite4-vision": {"vision_tower.": "vision_tower.vision_model."},
}
PICTURES = {
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.25, 0.5],
    "image_seq_length": 4,
    "min_pixels": 256,
    "max_pixels": 1024,
    "size": {"longest_edge": 64, "height": 32, "width": 32},
}
BREAK = {"added_tokens_decoder": {"12": {"content": "[IMG_BREAK]"}}}
FILES: dict[str, dict[str, Any]] = {
    name: {"preprocessor_config.json": PICTURES, "tokenizer_config.json": BREAK}
    for name, (_, keys) in MODELS.items() if "vision_config" in keys
}  # fmt: skip

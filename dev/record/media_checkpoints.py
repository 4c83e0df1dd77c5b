"""Tiny checkpoints with encoders of images and sound that transformers lacks, or saves with other
names than their authors, for dev/record/handmade_checkpoints.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

E, F, N, T = 32, 48, 3, 64  # embedding, feed-forward, layers, embedding of the text model
Shapes = Mapping[str, Any]
PICTURES = {
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.25, 0.5],
    "min_pixels": 256,
    "max_pixels": 1024,
    "image_seq_length": 4,
    "size": {"height": 32},
    "patch_size": 8,
    "min_num_patches": 4,
    "max_num_patches": 16,
    "min_image_tokens": 1,
    "max_image_tokens": 4,
}
FILES = {"preprocessor_config.json": PICTURES}
VISION: dict[str, Any] = {
    "hidden_size": E, "intermediate_size": F, "num_hidden_layers": N, "num_attention_heads": 2,
    "image_size": 32, "patch_size": 8, "layer_norm_eps": 1e-6, "hidden_act": "gelu",
}  # fmt: skip
WHISPER: dict[str, Any] = {
    "d_model": E, "encoder_layers": N, "encoder_attention_heads": 2, "encoder_ffn_dim": F,
    "num_mel_bins": 8,
}  # fmt: skip


def norms(*names: str, n: int = E) -> dict[str, Any]:
    """Return norms with a weight and a bias."""
    return {f"{name}{end}": (n,) for name in names for end in ("", ".bias!")}


def linear(name: str, n_out: int = E, n_in: int = E) -> dict[str, Any]:
    """Return a matrix with a bias."""
    return {name: (n_out, n_in), f"{name}.bias!": (n_out,)}


def nest(path: str, shapes: Shapes) -> dict[str, Any]:
    return {f"{path}.{name}": shape for name, shape in shapes.items()}


def layers(path: str, shapes: Shapes, n: int = N) -> dict[str, Any]:
    """Return the tensors of each layer of a path with `{}`."""
    return {k: s for i in range(n) for k, s in nest(path.format(i), shapes).items()}


def checkpoint(
    name: str, config: Mapping[str, Any], shapes: Shapes, files: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return config.json, tensors and further files. A module's name has `.weight` added unless it
    ends with `!`."""
    named = {n[:-1] if n.endswith("!") else f"{n}.weight": [*s] for n, s in shapes.items()}
    whole = {"architectures": [name], "model_type": "handmade", "hidden_size": T, **config}
    return whole, {n: ["F32", s] for n, s in named.items()}, {**FILES, **(files or {})}


def qkv(path: str, fused: str = "qkv", out: str = "proj") -> dict[str, Any]:
    return {**linear(f"{path}.{fused}", 3 * E), **linear(f"{path}.{out}")}


def attention(path: str, names: str = "q_proj k_proj v_proj out_proj") -> dict[str, Any]:
    return {k: s for name in names.split() for k, s in linear(f"{path}.{name}").items()}


def mlp(path: str = "mlp", up: str = "fc1", down: str = "fc2") -> dict[str, Any]:
    return {**linear(f"{path}.{up}", F), **linear(f"{path}.{down}", E, F)}


def swiglu(path: str, gate: str, up: str, down: str) -> dict[str, Any]:
    return {f"{path}.{gate}": (F, E), f"{path}.{up}": (F, E), f"{path}.{down}": (E, F)}


SIGLIP_LAYER = {**norms("layer_norm1", "layer_norm2"), **attention("self_attn"), **mlp()}
BLOCK = {**norms("norm1", "norm2"), **qkv("attn"), **mlp()}
PATCHES = (E, 3, 8, 8)
EMBEDDINGS = {"embeddings.patch_embedding": PATCHES, "embeddings.patch_embedding.bias!": (E,),
              "embeddings.position_embedding": (16, E)}  # fmt: skip
QWEN2 = {
    "visual.patch_embed.proj": (E, 3, 2, 8, 8),
    **layers("visual.blocks.{}", BLOCK),
    **norms("visual.merger.ln_q"),
    **linear("visual.merger.mlp.0", 4 * E, 4 * E),
    **linear("visual.merger.mlp.2", T, 4 * E),
}
TOWER = {"depth": N, "num_heads": 2, "patch_size": 8, "hidden_size": E, "intermediate_size": F}
QWEN3 = {
    "visual.patch_embed.proj": (E, 3, 2, 8, 8),
    "visual.patch_embed.proj.bias!": (E,),
    "visual.pos_embed": (16, E),
    **layers("visual.blocks.{}", {**norms("norm1", "norm2"), **qkv("attn"),
                                  **mlp("mlp", "linear_fc1", "linear_fc2")}),
}  # fmt: skip
WHISPER_LAYER = {
    **norms("self_attn_layer_norm", "final_layer_norm"),
    **attention("self_attn"),
    **linear("fc1", F),
    **linear("fc2", E, F),
}


def whisper(path: str, n: int = N) -> dict[str, Any]:
    """Return the tensors of Whisper's encoder."""
    return {
        f"{path}.conv1": (E, 8, 3), f"{path}.conv1.bias!": (E,),
        f"{path}.conv2": (E, E, 3), f"{path}.conv2.bias!": (E,),
        f"{path}.embed_positions": (40, E),
        **norms(f"{path}.layer_norm"),
        **layers(f"{path}.layers.{{}}", WHISPER_LAYER, n),
    }  # fmt: skip


def speech_tower(path: str) -> dict[str, Any]:
    """Return the audio encoder of Qwen3-Omni."""
    return {
        f"{path}.conv2d1": (4, 1, 3, 3), f"{path}.conv2d1.bias!": (4,),
        f"{path}.conv2d2": (4, 4, 3, 3), f"{path}.conv2d2.bias!": (4,),
        f"{path}.conv_out": (E, 8), **norms(f"{path}.ln_post"),
        **layers(f"{path}.layers.{{}}", WHISPER_LAYER),
        **linear(f"{path}.proj1"), **linear(f"{path}.proj2", T),
    }  # fmt: skip


def conformer(conv: str, attn: Shapes, n: int = 2) -> dict[str, Any]:
    """Return a layer's feed-forward networks and convolutions."""
    return {
        **norms("norm_feed_forward1", "norm_feed_forward2", "norm_self_att", "norm_conv",
               "norm_out"),
        **{k: s for i in (1, 2)
           for k, s in mlp(f"feed_forward{i}", "linear1", "linear2").items()},
        "conv.pointwise_conv1": (2 * E, E, 1), "conv.pointwise_conv1.bias!": (2 * E,),
        "conv.pointwise_conv2": (E, E, 1), "conv.depthwise_conv": (E, 1, 3),
        **norms(f"conv.{conv}"), f"conv.{conv}.running_mean!": (E,),
        f"conv.{conv}.running_var!": (E,), f"conv.{conv}.num_batches_tracked!": (1,),
        **attn,
    }  # fmt: skip


PIXTRAL_LAYER = {
    "attention_norm": (E,), "ffn_norm": (E,),
    **{f"attention.w{part}": (E, E) for part in "qkvo"}, **swiglu("feed_forward", "w1", "w3", "w2"),
}  # fmt: skip
SAM = {
    **norms("norm1", "norm2"), **qkv("attn"), **mlp("mlp", "lin1", "lin2"),
    "attn.rel_pos_h!": (7, 16), "attn.rel_pos_w!": (7, 16),
}  # fmt: skip
OCR_ENDS = {
    "model.sam_model.pos_embed!": (1, 4, 4, E), "model.sam_model.patch_embed.proj": PATCHES,
    **layers("model.sam_model.blocks.{}", SAM, 2),
    "model.sam_model.neck.0": (E, E, 1, 1), **norms("model.sam_model.neck.1"),
    "model.sam_model.net_2": (E, E, 3, 3), "model.sam_model.net_3": (E, E, 3, 3),
    **linear("model.projector.layers", T), "model.image_newline!": (T,),
    "model.view_seperator!": (T,), "model.layers.0.x": (T,), "lm_head": (8, T),
}  # fmt: skip
SAM_CONFIG = {"layers": 2, "width": E, "heads": 2}
CLIP_CONFIG = {"heads": 2, "image_size": 32, "layers": N, "patch_size": 8, "width": E}
OCR = {
    **OCR_ENDS,
    **nest("model.vision_model", {
        **EMBEDDINGS, "embeddings.class_embedding!": (E,), **norms("pre_layrnorm"),
        **layers("transformer.layers.{}", {
            **norms("layer_norm1", "layer_norm2"), **qkv("self_attn", "qkv_proj", "out_proj"),
            **mlp()})}),
}  # fmt: skip
OCR_CONFIG = {
    "language_config": {"hidden_size": T},
    "vision_config": {"width": {"sam_vit_b": SAM_CONFIG, "clip-l-14-224": CLIP_CONFIG}},
}
RADIO = "vision_model.radio_model.model"
NEMOTRON = {
    f"{RADIO}.patch_generator.cls_token.token!": (2, E),
    f"{RADIO}.patch_generator.embedder": (1280, 192),
    f"{RADIO}.patch_generator.pos_embed!": (1, 16, 1280),
    f"{RADIO}.patch_generator.video_embedder": (E, E),
    **layers(f"{RADIO}.blocks.{{}}", BLOCK),
    **norms("mlp1.0"), "mlp1.1": (F, E), "mlp1.3": (T, F),
    f"{RADIO}.input_conditioner.norm_mean!": (3,), "language_model.x": (T, T),
}  # fmt: skip
SOUND = {
    "subsampling.layers.0": (4, 1, 3, 3), "subsampling.layers.0.bias!": (4,),
    **linear("subsampling.linear"),
    "feature_extractor.featurizer.fb!": (1, 8, 9), "feature_extractor.featurizer.window!": (9,),
    **layers("layers.{}", conformer("norm", {
        **attention("self_attn", "q_proj k_proj v_proj o_proj"),
        "self_attn.relative_k_proj": (E, E), "self_attn.bias_u!": (2, 16),
        "self_attn.bias_v!": (2, 16)})),
}  # fmt: skip
NOTE_VISION = {
    "embed_dim": E, "hidden_size": T, "intermediate_size": F, "num_hidden_layers": N,
    "num_attention_heads": 2, "patch_size": 8, "pyramid_num_routed": [-1, 2, 2],
    "adapter_type": "patch_merger", "pre_pixel_shuffle": True, "use_qk_norm": True,
    "rms_norm_eps": 1e-5, "spatial_merge_size": 2, "capacity_factor": 2.0,
}  # fmt: skip
NOTE_AUDIO = {
    "use_conv2d_stem": True, "use_rope": True, "use_rms_norm": True, "chunk_seconds": 60,
    "whisper_config": {**WHISPER, "activation_function": "swiglu"},
    "rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 10000.0},
}  # fmt: skip
NOTE_BLOCK = {"norm_1": (E,), "norm_2": (E,), "attn.qkv": (3 * E, E), "attn.proj": (E, E),
              "attn.q_norm": (16,), "attn.k_norm": (16,)}  # fmt: skip
NOTE_SPEECH = "audio_encoder.dots_encoder.speech_encoder"
CHECKPOINTS = {
    "mmproj-internvl": checkpoint(
        "InternVLChatModel",
        {"llm_config": {"hidden_size": T}, "downsample_ratio": 0.5, "min_dynamic_patch": 1,
         "max_dynamic_patch": 12,
         "vision_config": {**VISION, "architectures": ["InternVisionModel"]}},
        {**nest("vision_model", {
            "embeddings.class_embedding!": (1, 1, E), "embeddings.patch_embedding": PATCHES,
            "embeddings.position_embedding!": (1, 17, E),
            **layers("encoder.layers.{}", {**BLOCK, "ls1!": (E,), "ls2!": (E,)})}),
         **norms("mlp1.0", n=4 * E), **linear("mlp1.1", T, 4 * E), "language_model.x": (T,)},
    ),
    "mmproj-intern-s1": checkpoint(
        "InternS1",
        {"text_config": {"hidden_size": T}, "downsample_ratio": 0.5,
         "vision_config": {**VISION, "architectures": ["InternVisionModel"],
                           "image_size": [32, 32], "patch_size": [8, 8]}},
        {**nest("model.vision_tower", {
            "embeddings.cls_token!": (1, 1, E), "embeddings.position_embeddings!": (1, 17, E),
            "embeddings.patch_embeddings.projection": PATCHES,
            **layers("encoder.layer.{}", {
                **attention("attention", "q_proj k_proj v_proj projection_layer"),
                "attention.q_norm": (E,), "attention.k_norm": (E,), **mlp(),
                **norms("layernorm_before", "layernorm_after"), "lambda_1!": (E,),
                "lambda_2!": (E,)})}),
         **norms("model.multi_modal_projector.layer_norm", n=4 * E),
         **linear("model.multi_modal_projector.linear_1", T, 4 * E)},
    ),
    "mmproj-youtu": checkpoint(
        "YoutuVLForConditionalGeneration",
        {"vision_config": {**VISION, "hidden_act": "gelu_pytorch_tanh", "window_size": 16,
                           "fullatt_block_indexes": [0, 2]}},
        {**nest("siglip2.vision_model", {
            **EMBEDDINGS, **norms("post_layernorm"), **layers("encoder.layers.{}", SIGLIP_LAYER)}),
         "merger.ln_q": (E,), **linear("merger.mlp.0", 4 * E, 4 * E),
         **linear("merger.mlp.2", T, 4 * E), "model.layers.0.x": (T,), "lm_head": (8, T),
         "siglip2.vision_model.head.probe!": (1, E)},
    ),
    "mmproj-cogvlm": checkpoint(
        "CogVLMForCausalLM", {"vision_config": VISION},
        {**nest("model.vision", {
            "patch_embedding.cls_embedding!": (1, E), "patch_embedding.proj": PATCHES,
            "patch_embedding.position_embedding": (17, E), "boi!": (1, 1, T), "eoi!": (1, 1, T),
            **layers("transformer.layers.{}", {
                **norms("input_layernorm", "post_attention_layernorm"), **mlp(),
                **qkv("attention", "query_key_value", "dense")}),
            "linear_proj.linear_proj": (T, E), **norms("linear_proj.norm1", n=T),
            "linear_proj.dense_h_to_4h": (F, T), "linear_proj.gate_proj": (F, T),
            "linear_proj.dense_4h_to_h": (T, F)}), "model.layers.0.x": (T,)},
    ),
    "mmproj-phi4": checkpoint(
        "Phi4ForCausalLMV", {"vision_config": VISION},
        {**nest("model.vision_tower.vision_tower.vision_model", {
            **EMBEDDINGS, "embeddings.patch_embedding": (E, 192), **norms("post_layernorm"),
            **layers("encoder.layers.{}", SIGLIP_LAYER), "head.probe!": (1, E)}),
         **linear("model.mm_projector.0", T), **linear("model.mm_projector.2", T, T)},
    ),
    "mmproj-kimi-vl": checkpoint(
        "KimiVLForConditionalGeneration",
        {"text_config": {"hidden_size": T}, "vision_config": VISION},
        {**nest("vision_tower", {
            "patch_embed.proj": PATCHES, "patch_embed.proj.bias!": (E,),
            "patch_embed.pos_emb": (4, 4, E), **norms("encoder.final_layernorm"),
            **layers("encoder.blocks.{}", {
                **norms("norm0", "norm1"), **linear("wqkv", 3 * E), **linear("wo"),
                **mlp("mlp", "fc0", "fc1")})}),
         **nest("multi_modal_projector", {
             **norms("pre_norm"), **linear("linear_1", F, F), **linear("linear_2", T, F)}),
         "language_model.lm_head": (8, T)},
    ),
    "mmproj-kimi-k25": checkpoint(
        "KimiK25ForConditionalGeneration",
        {"text_config": {"hidden_size": T},
         "vision_config": {"vt_hidden_size": 64, "vt_intermediate_size": F,
                           "vt_num_hidden_layers": N, "vt_num_attention_heads": 16,
                           "patch_size": 8, "init_pos_emb_height": 4, "init_pos_emb_width": 4,
                           "init_pos_emb_time": 2, "merge_kernel_size": [2, 2]}},
        {**nest("vision_tower", {
            "patch_embed.proj": (64, 3, 8, 8), "patch_embed.pos_emb": (4, 4, 64),
            **layers("encoder.blocks.{}", {
                **norms("norm0", "norm1", n=64), **linear("wqkv", 192, 64), **linear("wo", 64, 64),
                **linear("mlp.fc0", F, 64), **linear("mlp.fc1", 64, F)})}),
         **norms("mm_projector.pre_norm", n=64), **linear("mm_projector.proj.0", F, F),
         **linear("mm_projector.proj.2", T, F)},
    ),
    "mmproj-glm5v": checkpoint(
        "Glm5vForConditionalGeneration",
        {"text_config": {"hidden_size": T},
         "vision_config": {**VISION, "num_attention_heads": 2, "init_pos_emb_height": 4,
                           "projector_hidden_act": "silu"}},
        {"vision_tower.encoder.blocks.0.norm0": (E,), "vision_tower.patch_embed.proj": PATCHES,
         **linear("vision_tower.encoder.blocks.0.wqkv", 3 * E),
         **linear("mm_projector.linear_1", F, F), **linear("mm_projector.linear_2", T, F)},
    ),
    "mmproj-deepseek-ocr": checkpoint("DeepseekOCRForCausalLM", OCR_CONFIG, OCR),
    "mmproj-unlimited-ocr": checkpoint("UnlimitedOCRForCausalLM", OCR_CONFIG, OCR),
    "mmproj-deepseek-ocr2": checkpoint(
        "DeepseekOCR2ForCausalLM",
        {"language_config": {"hidden_size": T},
         "vision_config": {"image_size": 32, "width": {
             "sam_vit_b": SAM_CONFIG, "qwen2-0-5b": {"dim": E}}}},
        {**OCR_ENDS, "model.qwen2_model.query_768": (144, E),
         "model.qwen2_model.query_1024": (256, E), "model.qwen2_model.model.model.norm": (E,),
         **layers("model.qwen2_model.model.model.layers.{}", {
             "input_layernorm": (E,), "post_attention_layernorm": (E,),
             **attention("self_attn", "q_proj k_proj v_proj o_proj"),
             **swiglu("mlp", "gate_proj", "up_proj", "down_proj")})},
    ),
    "mmproj-deepseek4v": checkpoint(
        "DeepseekV4ForCausalLM",
        {"vision_n_layers": N, "vision_dim": E, "vision_n_heads": 2, "vision_inter_dim": F,
         "vision_patch_size": 8, "vision_downsample_ratio": 2, "vision_min_pixels": 256,
         "vision_max_n_token": 384, "vision_max_wh_ratio": 8},
        {**nest("vision", {
            "patch_embed.proj": (E, 192), "patch_embed.proj.bias!": (E,), "norm": (E,),
            **layers("blocks.{}", {
                "norm1": (E,), "norm2": (E,), **qkv("attn", "wqkv", "wo"),
                "mlp.w1": (2 * F, E), "mlp.w2": (E, F)})}),
         **linear("aligner.w1", T), **linear("aligner.w2", T, T), "image_newline!": (T,),
         "image_start!": (T,), "image_end!": (T,), "image_pad!": (T,), "layers.0.x": (T,)},
    ),
    "mmproj-dots-ocr": checkpoint(
        "DotsOCRForCausalLM",
        {"vision_config": {**VISION, "rms_norm_eps": 1e-5, "spatial_merge_size": 2}},
        {**nest("vision_tower", {
            "patch_embed.patchifier.proj": PATCHES, "patch_embed.patchifier.norm": (E,),
            **layers("blocks.{}", {
                "norm1": (E,), "norm2": (E,), "attn.qkv": (3 * E, E), "attn.proj": (E, E),
                **swiglu("mlp", "fc1", "fc3", "fc2")}),
            "post_trunk_norm": (E,), **norms("merger.ln_q"), **linear("merger.mlp.0", F, F),
            **linear("merger.mlp.2", T, F)}), "model.layers.0.x": (T,)},
    ),
    "mmproj-dots3note": checkpoint(
        "Dots3NoteForCausalLM", {"vision_config": NOTE_VISION, "audio_config": NOTE_AUDIO},
        {**nest("vision_encoder", {
            "patch_embed.proj": PATCHES, "patch_embed.norm": (E,), "post_trunk_norm": (E,),
            **nest("blocks.0", {**NOTE_BLOCK, **swiglu("mlp", "fc1", "fc3", "fc2")}),
            **{k: s for i in (1, 2) for k, s in nest(f"blocks.{i}", {
                **NOTE_BLOCK, "mlp.gate_weight!": (2, E), "mlp.router_bias!": (2,),
                **swiglu("mlp.experts.0", "fc1", "fc3", "fc2"),
                **swiglu("mlp.experts.1", "fc1", "fc3", "fc2")}).items()},
            **norms("adapter.ln_q"), **linear("adapter.mlp.0", F, F),
            **linear("adapter.mlp.2", T, F)}),
         **nest(NOTE_SPEECH, {
             **{f"conv2d{i}{end}": s for i in (1, 2) for end, s in (
                 ("", (4, 4, 3, 3)), (".bias!", (4,)))},
             "conv_out": (E, 8), "layer_norm": (E,),
             **layers("layers.{}", {
                 "self_attn_layer_norm": (E,), "final_layer_norm": (E,), **attention("self_attn"),
                 **linear("fc1", 2 * F), **linear("fc2", E, F)})}),
         "audio_encoder.audio_adapter.proj.0": (E,), **linear("audio_encoder.audio_adapter.proj.1"),
         "model.layers.0.x": (T,)},
        {"preprocessor_config.json": {"vision_config": PICTURES}},
    ),
    "mmproj-nemotron-vl": checkpoint(
        "NemotronH_Nano_VL_V2",
        {"llm_config": {"hidden_size": T}, "vision_config": {"patch_size": 8},
         "force_image_size": 32, "downsample_ratio": 0.5},
        NEMOTRON,
    ),
    "mmproj-nemotron-omni": checkpoint(
        "NemotronH_Nano_VL_V2",
        {"llm_config": {"hidden_size": T}, "vision_config": {"patch_size": 8},
         "force_image_size": 32,
         "sound_config": {"hidden_size": E, "intermediate_size": F, "num_hidden_layers": N,
                          "num_attention_heads": 2, "num_mel_bins": 8, "subsampling_factor": 8,
                          "conv_kernel_size": 3}},
        {**NEMOTRON, **nest("sound_encoder.encoder", SOUND), "sound_projection.norm": (E,),
         "sound_projection.linear1": (F, E), "sound_projection.linear2": (T, F)},
    ),
    "mmproj-step3": checkpoint(
        "StepVLForConditionalGeneration",
        {"understand_projector_stride": 2,
         "vision_config": {"image_size": 728, "width": 1536, "layers": 47, "heads": 16,
                           "patch_size": 14}},
        {**nest("vision_model", {
            "conv1": PATCHES, "positional_embedding!": (17, E), **norms("ln_pre"),
            **layers("transformer.resblocks.{}", {
                **norms("ln_1", "ln_2"), "attn.in_proj_weight!": (3 * E, E),
                "attn.in_proj_bias!": (3 * E,), **linear("attn.out_proj"),
                **mlp("mlp", "c_fc", "c_proj"), "ls_1.gamma!": (E,), "ls_2.gamma!": (E,)}, 2),
            "vit_downsampler1": (F, E, 3, 3), "vit_downsampler1.bias!": (F,),
            "vit_downsampler2": (F, F, 3, 3), "vit_downsampler2.bias!": (F,)}),
         "vit_large_projector": (T, F), "model.layers.0.x": (T,), "lm_head": (8, T)},
    ),
    "mmproj-ling3": checkpoint(
        "BailingMoeV3VLForConditionalGeneration",
        {"text_config": {"hidden_size": T, "rms_norm_eps": 1e-5},
         "vision_config": {**TOWER, "num_position_embeddings": 16, "spatial_merge_size": 2,
                           "disable_merger_proj": True, "out_hidden_size": 4 * E}},
        {**nest("model", QWEN3), **norms("model.visual.merger.norm"),
         **linear("linear_proj.0", T, 4 * E), **linear("linear_proj.2", T, T),
         "lm_head": (8, T), "model.language_model.x": (T,)},
    ),
    "mmproj-sarashina": checkpoint(
        "Sarashina2VisionForCausalLM",
        {"text_config": {"hidden_size": T},
         "vision_config": {**TOWER, "embed_dim": E, "hidden_size": T}},
        {**QWEN2, "llm.model.norm": (T,), "norm": (T,)},
    ),
    "mmproj-glm5-next": checkpoint(
        "Glm5NextForConditionalGeneration",
        {"text_config": {"hidden_size": T},
         "vision_config": {**TOWER, "image_size": 32, "hidden_act": "silu", "swiglu_limit": 7.0}},
        {"model.visual.patch_embed.proj": (E, 3, 2, 8, 8), "model.visual.downsample": (T, E, 2, 2),
         "model.visual.post_layernorm": (E,),
         **layers("model.visual.blocks.{}", {
             "norm1": (E,), "norm2": (E,), **qkv("attn"), "attn.q_norm": (16,),
             "attn.k_norm": (16,), **swiglu("mlp", "gate_proj", "up_proj", "down_proj")}),
         **nest("model.visual.merger", {
             "proj": (T, T), **norms("post_projection_norm", n=T), "gate_proj": (F, T),
             "up_proj": (F, T), "down_proj": (T, F)}), "lm_head": (8, T), "mtp.x": (T,)},
    ),
    "mmproj-qwen25omni": checkpoint(
        "Qwen2_5OmniModel",
        {"model_type": "qwen2_5_omni", "thinker_config": {
            "text_config": {"hidden_size": T}, "audio_config": WHISPER,
            "vision_config": {**TOWER, "fullatt_block_indexes": [0, 1, 2]}}},
        {**nest("thinker", {
            **QWEN2, **{k: s for k, s in whisper("audio_tower").items() if "embed" not in k},
            **linear("audio_tower.proj", T), "audio_tower.audio_bos_eos_token": (2, T),
            "model.norm": (T,)}), "talker.x": (T,)},
    ),
    "mmproj-qwen3omni": checkpoint(
        "Qwen3OmniMoeForConditionalGeneration",
        {"thinker_config": {
            "text_config": {"hidden_size": T, "rms_norm_eps": 1e-6}, "audio_config": WHISPER,
            "vision_config": {**TOWER, "num_position_embeddings": 16, "spatial_merge_size": 2,
                              "deepstack_visual_indexes": [1]}}},
        nest("thinker", {
            **QWEN3, **norms("visual.merger.ln_q"), **linear("visual.merger.mlp.0", F, F),
            **linear("visual.merger.mlp.2", T, F), **norms("visual.merger_list.0.ln_q", n=F),
            **linear("visual.merger_list.0.mlp.0", F, F),
            **linear("visual.merger_list.0.mlp.2", T, F), **speech_tower("audio_tower"),
            "model.norm": (T,), "lm_head": (8, T)}),
    ),
    "mmproj-qwen3asr": checkpoint(
        "Qwen3ASRForConditionalGeneration",
        {"thinker_config": {"text_config": {"hidden_size": T}, "audio_config": WHISPER}},
        nest("thinker", {**speech_tower("audio_tower"), "model.norm": (T,), "lm_head": (8, T)}),
    ),
    "mmproj-params": (
        {"dim": T, "norm_eps": 1e-5, "vision_encoder": {
            **VISION, "rope_theta": 10000.0, "mm_projector_id": "patch_merge",
            "spatial_merge_size": 2, "image_break_token_id": -1}},
        checkpoint("", {}, {
            "vision_encoder.patch_conv": PATCHES, "vision_encoder.ln_pre": (E,),
            **layers("vision_encoder.transformer.layers.{}", PIXTRAL_LAYER),
            **linear("vision_language_adapter.w_in", T), "vision_language_adapter.w_out": (T, T),
            "patch_merger.merging_layer": (E, 4 * E), "pre_mm_projector_norm": (E,),
            "tok_embeddings": (16, T), "layers.0.x": (T,)})[1],
        {"tekken.json": {"special_tokens": [{"rank": 3, "token_str": "[IMG_BREAK]"}]}},
    ),
}  # fmt: skip

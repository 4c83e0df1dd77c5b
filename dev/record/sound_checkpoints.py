"""Tiny checkpoints with encoders of sound: see dev/record/media_checkpoints.py."""

from __future__ import annotations

from dev.record.media_checkpoints import (
    WHISPER,
    E,
    F,
    N,
    T,
    attention,
    checkpoint,
    conformer,
    layers,
    linear,
    nest,
    norms,
    whisper,
)

TIMM = "model.vision_tower.timm_model"
GEMMA3N_LAYER = {
    **{f"ffw_layer_{end}.{name}": shape for end in ("start", "end") for name, shape in {
        "pre_layer_norm": (E,), "post_layer_norm": (E,), "ffw_layer_1": (F, E),
        "ffw_layer_2": (E, F)}.items()},
    "attention.pre_attn_norm": (E,), "attention.post_norm": (E,), "attention.post": (E, E),
    **{f"attention.attn.{part}_proj": (E, E) for part in "qkv"},
    "attention.attn.per_dim_scale!": (16,),
    "attention.attn.relative_position_embedding.pos_proj": (E, E),
    "lconv1d.pre_layer_norm": (E,), "lconv1d.conv_norm": (E,), "lconv1d.linear_start": (F, E),
    "lconv1d.linear_end": (E, E), "lconv1d.depthwise_conv1d": (E, 1, 5), "norm": (E,),
}  # fmt: skip

CHECKPOINTS = {
    "mmproj-ultravox": checkpoint(
        "UltravoxModel",
        {"text_config": {"hidden_size": T}, "audio_config": WHISPER, "stack_factor": 8},
        {**whisper("audio_tower"), "multi_modal_projector.ln_pre": (F,),
         "multi_modal_projector.linear_1": (F, F), "multi_modal_projector.ln_mid": (F,),
         "multi_modal_projector.linear_2": (T, F)},
    ),
    "mmproj-glmasr": checkpoint(
        "GlmasrModel",
        {"lm_config": {"hidden_size": T}, "whisper_config": WHISPER, "merge_factor": 4},
        {**{k: s for k, s in whisper("audio_encoder.whisper").items() if "layer_norm" not in k
            or "layers" in k}, **norms("audio_encoder.layer_norm"),
         **linear("audio_encoder.adapting.0", F, F), **linear("audio_encoder.adapting.2", T, F),
         "audio_encoder.audio_bos_eos_token": (2, T), "model.norm": (T,), "lm_head": (8, T)},
    ),
    "mmproj-meralion": checkpoint(
        "MERaLiON2ForConditionalGeneration",
        {"text_config": {"hidden_size": T}, "speech_config": WHISPER},
        {**whisper("speech_encoder"), **norms("ln_speech"),
         **linear("speech_audio_adapter.mlp_adapter.0", F),
         **linear("speech_audio_adapter.gate_proj", F, F),
         **linear("speech_audio_adapter.pool_proj", F, F),
         **linear("speech_audio_adapter.out_proj", T, F), "text_decoder.x": (T,)},
    ),
    "mmproj-lfm2-audio": checkpoint(
        "Lfm2AudioForConditionalGeneration",
        {"lfm": {"hidden_size": T}, "encoder": {"d_model": E, "n_heads": 2, "n_layers": N,
                                               "feat_in": 8}},
        {"conformer.pre_encode.conv.0": (4, 1, 3, 3), "conformer.pre_encode.conv.0.bias!": (4,),
         **linear("conformer.pre_encode.out"),
         **layers("conformer.layers.{}", conformer("batch_norm", {
             **attention("self_attn", "linear_q linear_k linear_v linear_out"),
             "self_attn.linear_pos": (E, E), "self_attn.pos_bias_u!": (2, 16),
             "self_attn.pos_bias_v!": (2, 16)})),
         **norms("audio_adapter.model.0"), **linear("audio_adapter.model.1", T),
         "audio_embedding.embedding": (16, T), "audio_embedding.embedding_norm": (T,),
         "audio_embedding.to_logits": (16, T), "lfm.norm": (T,), "codebook_offsets!": (8,),
         "depth_linear": (T, T)},
    ),
    "mmproj-gemma3n": checkpoint(
        "Gemma3nForConditionalGeneration",
        {"text_config": {"hidden_size": T}, "vision_config": {"hidden_size": E},
         "audio_config": {"hidden_size": E, "conf_num_hidden_layers": 2, "input_feat_size": 8,
                          "conf_num_attention_heads": 2}},
        {**nest(TIMM, {
            "conv_stem.conv": (E, 3, 3, 3), "conv_stem.conv.bias!": (E,), "conv_stem.bn": (E,),
            "blocks.0.0.conv_exp": (F, E, 3, 3), "blocks.0.0.bn1": (F,),
            "blocks.1.2.dw_start.conv": (F, 1, 3, 3), "blocks.1.2.layer_scale.gamma!": (E,),
            "blocks.1.3.attn.query.proj": (E, E, 1, 1), "msfa.ffn.pw_exp.conv": (F, E, 1, 1),
            "msfa.ffn.pw_proj.bn": (E,), "msfa.norm": (E,)}),
         **layers("model.audio_tower.conformer.{}", GEMMA3N_LAYER, 2),
         "model.audio_tower.subsample_conv_projection.conv_0.conv": (4, 1, 3, 3),
         "model.audio_tower.subsample_conv_projection.input_proj_linear": (E, 8),
         **{f"model.embed_{part}.{name}": shape for part in ("vision", "audio")
            for name, shape in {
                "embedding": (8, E), "embedding_projection": (T, E), "hard_embedding_norm": (E,),
                "soft_embedding_norm": (E,)}.items()},
         "model.language_model.norm": (T,)},
    ),
}  # fmt: skip

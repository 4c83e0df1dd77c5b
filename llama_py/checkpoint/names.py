"""Modules of checkpoints and the tensors of GGUF files, for names that many models share.

`{}` is the number of the layer. A model's own table extends or replaces these.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

Names = Mapping[str, str]
NUMBER = re.compile(r"(?<=\.)\d+(?=\.)|^\d+(?=\.)")


def pairs(text: str) -> dict[str, str]:
    """Return tensors by module, of a text `module=tensor module=tensor ...`. After a path, such as
    `model.layers.{}:`, follow the modules of its layers, see `name_layers`."""
    found, path = dict[str, str](), ""
    for word in text.split():
        module, _, tensor = word.partition("=")
        if word.endswith(":"):
            path = word[:-1]
        elif path:
            found |= name_layers(path, {module: tensor})
        else:
            found[module] = tensor
    return found


def find_layer(name: str) -> int | None:
    """Return the first number in a name, its layer."""
    match = NUMBER.search(name)
    return int(match[0]) if match else None


def name_layers(path: str, modules: Names) -> dict[str, str]:
    """Return the names of modules in each layer, by path, and of their tensors."""
    return {f"{path}.{module}": f"blk.{{}}.{tensor}" for module, tensor in modules.items()}


ATTENTION = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
}
HEAD_NORMS = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
FEED_FORWARD = {"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
EXPERTS = {
    "mlp.gate": "ffn_gate_inp",
    "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
}
SHARED_EXPERT = {
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
PRE_NORMS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
MODEL = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
LAYERS = "model.layers.{}"
LLAMA = {**MODEL, **name_layers(LAYERS, {**PRE_NORMS, **ATTENTION, **FEED_FORWARD})}
POST_NORMS = {
    "post_attention_layernorm": "post_attention_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
SHARED_EXPERTS = {
    f"mlp.shared_experts.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")
}
ROUTED_EXPERTS = {**EXPERTS, **SHARED_EXPERTS, "mlp.gate.e_score_correction": "exp_probs_b"}
# Multi-head latent attention
LATENT = pairs("""
    self_attn.q_a_proj=attn_q_a self_attn.q_b_proj=attn_q_b self_attn.q_a_layernorm=attn_q_a_norm
    self_attn.kv_a_proj_with_mqa=attn_kv_a_mqa self_attn.kv_a_layernorm=attn_kv_a_norm
    self_attn.k_b_proj=attn_k_b self_attn.v_b_proj=attn_v_b
""")
INDEXER = {
    "self_attn.indexer.k_norm": "indexer.k_norm",
    "self_attn.indexer.weights_proj": "indexer.proj",
    "self_attn.indexer.wk": "indexer.attn_k",
    "self_attn.indexer.wq_b": "indexer.attn_q_b",
}
# Kimi's delta attention
DELTA_ATTENTION = pairs("""
    self_attn.q_conv1d=ssm_conv1d_q self_attn.k_conv1d=ssm_conv1d_k self_attn.v_conv1d=ssm_conv1d_v
    self_attn.f_a_proj=ssm_f_a self_attn.f_b_proj=ssm_f_b self_attn.g_a_proj=ssm_g_a
    self_attn.g_b_proj=ssm_g_b self_attn.b_proj=ssm_beta self_attn.A_log=ssm_a
    self_attn.dt_proj=ssm_dt self_attn.o_norm=ssm_norm
""")
NEXTN = pairs("""
    eh_proj=nextn.eh_proj enorm=nextn.enorm hnorm=nextn.hnorm embed_tokens=nextn.embed_tokens
    shared_head.head=nextn.shared_head_head shared_head.norm=nextn.shared_head_norm
""")
# Modules of Mamba and Mamba 2
STATE_SPACE = pairs("""
    in_proj=ssm_in conv1d=ssm_conv1d x_proj=ssm_x dt_proj=ssm_dt A_log=ssm_a D=ssm_d norm=ssm_norm
    out_proj=ssm_out
""")
MAMBA = {f"mamba.{module}": tensor for module, tensor in STATE_SPACE.items()}

# Parts of names in modules of images and sound, not converted for a text model.
MEDIA_STARTS = (
    "mlp", "vit.", "vpm.", "siglip2.", "conformer.", "merger.", "resampler.", "sound_encoder.",
    "sound_projection.", "speech_embeddings.",
)  # fmt: skip
MEDIA = (
    "visual.", "vision.", "audio.", "talker.", "vision_", "audio_", "token2wav.", "code2wav.",
    "projector.", "pre_mm_projector_norm", "image_newline", "view_seperator", "patch_embed",
    "patch_embedding", "patch_merger.", "patch_merge_mlp.", "model.connector.",
)  # fmt: skip

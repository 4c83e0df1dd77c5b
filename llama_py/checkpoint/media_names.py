"""Modules of encoders of images and sound, and their tensors in GGUF files."""

from __future__ import annotations

from llama_py.checkpoint.names import Names, pairs

# Parts of a layer by tensor. A family of models has some of these names.
_PARTS: dict[str, tuple[str, ...]] = {
    "ln1": (
        "layer_norm1", "norm1", "norm_1", "input_layernorm", "attention_norm", "layernorm_before",
        "ln_1",
    ),
    "ln2": (
        "layer_norm2", "norm2", "norm_2", "post_attention_layernorm", "ffn_norm",
        "layernorm_after", "ln_2",
    ),
    "ffn_up": (
        "mlp.fc1", "mlp.linear_fc1", "mlp.up_proj", "mlp.c_fc", "mlp.dense_h_to_4h",
        "feed_forward.up_proj", "feed_forward.w3",
    ),
    "ffn_gate": ("mlp.gate_proj", "feed_forward.gate_proj", "feed_forward.w1"),
    "ffn_down": (
        "mlp.fc2", "mlp.linear_fc2", "mlp.down_proj", "mlp.c_proj", "mlp.dense_4h_to_h",
        "feed_forward.down_proj", "feed_forward.w2",
    ),
    "ls1": ("ls1", "ls_1", "lambda_1"),
    "ls2": ("ls2", "ls_2", "lambda_2"),
}  # fmt: skip
_ATTENTION: dict[str, tuple[str, ...]] = {
    "attn_qkv": ("qkv", "wqkv", "qkv_proj", "query_key_value", "in_proj"),
    "attn_out": ("out_proj", "o_proj", "proj", "wo", "dense", "projection_layer"),
    "attn_q_norm": ("q_norm",),
    "attn_k_norm": ("k_norm",),
    "attn_sinks": ("sinks",),
    **{f"attn_{part}": (f"{part}_proj", f"w{part}", part) for part in "qkv"},
}
_LAYER = {name: tensor for tensor, names in _PARTS.items() for name in names} | {
    f"{module}.{name}": tensor
    for module in ("self_attn", "attention", "attn")
    for tensor, names in _ATTENTION.items()
    for name in names
}
WHISPER_LAYER = pairs("""
    self_attn_layer_norm=ln1 self_attn.q_proj=attn_q self_attn.k_proj=attn_k self_attn.v_proj=attn_v
    self_attn.out_proj=attn_out final_layer_norm=ln2 fc1=ffn_up fc2=ffn_down
""")


def name_blocks(path: str, modules: Names | None = None, to: str = "v.blk.{}") -> dict[str, str]:
    """Return the tensors of the layers at a path: of images by the usual names of modules, if
    `modules` are not given."""
    found = _LAYER if modules is None else modules
    return {f"{path}.{module}": f"{to}.{tensor}" for module, tensor in found.items()}


def name_tower(path: str, layers: str = "encoder.layers") -> dict[str, str]:
    """Return the tensors of a vision transformer at a path, with the names of CLIP and SigLIP."""
    return {
        f"{path}.embeddings.class_embedding": "v.class_embd",
        f"{path}.embeddings.patch_embedding": "v.patch_embd",
        f"{path}.embeddings.position_embedding": "v.position_embd",
        f"{path}.pre_layrnorm": "v.pre_ln",
        f"{path}.post_layernorm": "v.post_ln",
        **name_blocks(f"{path}.{layers}.{{}}"),
    }


def name_whisper(path: str) -> dict[str, str]:
    """Return the tensors of an audio encoder at a path, with the names of Whisper."""
    return {
        f"{path}.conv1": "a.conv1d.1",
        f"{path}.conv2": "a.conv1d.2",
        f"{path}.embed_positions": "a.position_embd",
        f"{path}.layer_norm": "a.post_ln",
        f"{path}.ln_post": "a.post_ln",
        **name_blocks(f"{path}.layers.{{}}", WHISPER_LAYER, "a.blk.{}"),
    }


_CONFORMER: dict[str, tuple[str, ...]] = {
    "attn_q": ("self_attn.q_proj", "self_attn.linear_q", "attention.attn.q_proj", "attn.to_q"),
    "attn_k": ("self_attn.k_proj", "self_attn.linear_k", "attention.attn.k_proj", "attn.to_k"),
    "attn_v": ("self_attn.v_proj", "self_attn.linear_v", "attention.attn.v_proj", "attn.to_v"),
    "attn_out": (
        "self_attn.post", "self_attn.linear_out", "self_attn.o_proj", "attention.post",
        "attn.to_out",
    ),
    "attn_k_rel": ("self_attn.relative_k_proj",),
    "attn_post_norm": ("norm_post_attn",),
    "attn_pre_norm": ("norm_pre_attn",),
    "per_dim_scale": ("self_attn.per_dim_scale", "attention.attn.per_dim_scale"),
    "per_dim_k_scale": ("attention.attn.per_dim_key_scale",),
    "layer_pre_norm": ("norm",),
    "ln1": ("norm_self_att", "attention.pre_attn_norm", "attn.pre_norm"),
    "ln2": ("norm_out", "attention.post_norm", "post_norm"),
    "linear_pos": (
        "self_attn.linear_pos", "attention.attn.relative_position_embedding.pos_proj",
    ),
    "pos_bias_u": ("self_attn.pos_bias_u", "self_attn.bias_u"),
    "pos_bias_v": ("self_attn.pos_bias_v", "self_attn.bias_v"),
    "conv_dw": ("conv.depthwise_conv", "lconv1d.depthwise_conv1d", "conv.depth_conv.conv"),
    "conv_norm": ("conv.batch_norm", "lconv1d.pre_layer_norm", "conv.norm"),
    "conv_pw1": ("conv.pointwise_conv1", "lconv1d.linear_start", "conv.up_conv"),
    "conv_pw2": ("conv.pointwise_conv2", "lconv1d.linear_end", "conv.down_conv"),
    "norm_conv": ("norm_conv", "lconv1d.conv_norm"),
}  # fmt: skip
CONFORMER_LAYER = {name: tensor for tensor, names in _CONFORMER.items() for name in names}
# The two feed-forward networks of a layer of a conformer
for _first, _tail, _modules in (
    ("norm_feed_forward1", "", ("feed_forward1", "ffw_layer_start", "ff1")),
    ("norm_feed_forward2", "_1", ("feed_forward2", "ffw_layer_end", "ff2")),
):
    CONFORMER_LAYER[_first] = f"ffn_norm{_tail}"
    for _module in _modules:
        CONFORMER_LAYER |= {
            f"{_module}.pre_layer_norm": f"ffn_norm{_tail}",
            f"{_module}.pre_norm": f"ffn_norm{_tail}",
            f"{_module}.post_layer_norm": f"ffn_post_norm{_tail}",
            f"{_module}.post_layer_scale": f"ffn_scale{_tail}",
            **dict.fromkeys(
                (f"{_module}.linear1", f"{_module}.ffw_layer_1", f"{_module}.up_proj"),
                f"ffn_up{_tail}",
            ),
            **dict.fromkeys(
                (f"{_module}.linear2", f"{_module}.ffw_layer_2", f"{_module}.down_proj"),
                f"ffn_down{_tail}",
            ),
        }

_Q_FORMER = {
    **{f"{module}.attention.{part}": f"{new}_attn_{part[0]}"
       for module, new in (("attention", "self"), ("crossattention", "cross"))
       for part in ("query", "key", "value")},
    **{f"{module}.output.{part}": f"{new}_attn_{tensor}"
       for module, new in (("attention", "self"), ("crossattention", "cross"))
       for part, tensor in (("dense", "out"), ("LayerNorm", "norm"))},
    "intermediate_query.dense": "ffn_up",
    "output_query.dense": "ffn_down",
    "output_query.LayerNorm": "ffn_norm",
}  # fmt: skip


def name_q_former(path: str, to: str) -> dict[str, str]:
    """Return the tensors of a Q-Former's layers at a path."""
    return name_blocks(path, _Q_FORMER, to)

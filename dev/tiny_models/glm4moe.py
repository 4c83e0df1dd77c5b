"""Tiny models of GLM-4.5."""

from dev.tiny_models import MOE, Tiny

# Layers: dense, with experts, and NextN.
MTP = {
    **MOE,
    "block_count": 3,
    "nextn_predict_layers": 1,
    "leading_dense_block_count": 1,
    "expert_shared_count": 2,
    "expert_weights_norm": True,
    "expert_weights_scale": 2.5,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.dimension_count": 16,
}
AXES = {k: v for k, v in MTP.items() if not k.startswith("nextn")}

TINY = {
    "mtp": Tiny(keys=MTP, gain={"*.ffn_gate_inp.weight": 2}),
    # Several position axes, no norms of heads.
    "axes": Tiny(
        keys={**AXES, "block_count": 2, "rope.dimension_sections": [2, 3, 3, 0]},
        without=["*.attn_[qk]_norm.weight", "*.scale", "output.weight"],
        gain={"token_embd.weight": 0.4, "*.attn_[qk].weight": 1.5},
        familiar=True,
    ),
}

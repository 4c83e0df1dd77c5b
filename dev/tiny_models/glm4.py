"""Tiny models of GLM-4."""

from dev.tiny_models import WIDE, Tiny

DENSE = {**WIDE, "attention.layer_norm_rms_epsilon": 1e-5, "rope.dimension_count": 16}

NEXTN = {
    "attn_norm": (64,), "attn_q": (64, 128), "attn_k": (64, 64), "attn_v": (64, 64),
    "attn_output": (128, 64), "post_attention_norm": (64,), "ffn_norm": (64,),
    "ffn_down": (96, 64), "ffn_up": (64, 192), "post_ffw_norm": (64,),
    "nextn.eh_proj": (128, 64), "nextn.enorm": (64,), "nextn.hnorm": (64,),
}  # fmt: skip

TINY = {
    "dense": Tiny(keys=DENSE, gain={"*.attn_[qk].weight": 2}),
    # Several position axes; a layer that is not run; one matrix for queries, keys and values.
    "axes": Tiny(
        keys={
            **DENSE,
            "rope.dimension_sections": [2, 3, 3, 0],
            "block_count": 3,
            "nextn_predict_layers": 1,
        },
        without=["*.bias", "*.scale", "output.weight"],
        keep=["*.attn_qkv.weight"],
        gain={"token_embd.weight": 0.4},
        unread={f"blk.2.{stem}.weight": ne for stem, ne in NEXTN.items()},
    ),
}

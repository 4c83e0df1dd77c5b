"""Tiny models of EXAONE 4."""

from dev.tiny_models import SIZES, Tiny

NEXTN = {
    "attn_q": (64, 64), "attn_k": (64, 32), "attn_v": (64, 32), "attn_output": (64, 64),
    "attn_q_norm": (16,), "attn_k_norm": (16,), "post_attention_norm": (64,),
    "ffn_gate": (64, 96), "ffn_down": (96, 64), "ffn_up": (64, 96), "post_ffw_norm": (64,),
    "nextn.eh_proj": (128, 64), "nextn.enorm": (64,), "nextn.hnorm": (64,),
}  # fmt: skip

TINY = {
    # One layer does not run. Only models of 64 layers read windows.
    "dense": Tiny(
        keys={
            **SIZES,
            "block_count": 3,
            "nextn_predict_layers": 1,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "attention.sliding_window": 12,
            "rope.freq_base": 1e6,
        },
        without=["*.bias", "output.weight"],
        unread={f"blk.2.{stem}.weight": ne for stem, ne in NEXTN.items()},
        gain={"token_embd.weight": 0.4},
        familiar=True,
    )
}

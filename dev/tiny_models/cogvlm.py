"""Tiny models of CogVLM. One token at a time: llama.cpp returns other rows than requested."""

from dev.tiny_models import CHANNELS, Tiny

TINY = {
    "text": Tiny(
        keys={**CHANNELS, "attention.head_count": 4, "attention.layer_norm_rms_epsilon": 1e-5},
        without=["output.weight", "*.attn_qkv.scale", "*.vis_*.scale"],
        gain={"token_embd.weight": 0.4, "*.attn_qkv.weight": 1.5},
        familiar=True,
        prompt=1,
        steps=20,
        sequences=1,
    )
}

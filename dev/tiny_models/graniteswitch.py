"""Tiny models of Granite Switch."""

from dev.tiny_models import SIZES, Tiny

# Tokens of adapters one and three; the mean of their numbers is rarely a half.
KEYS = {
    **SIZES,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "logit_scale": 0.5,
    "residual_scale": 0.6,
    "embedding_scale": 1.5,
    "attention.scale": 0.3,
    "adapters.count": 3,
    "adapters.lora_rank": 8,
    "adapters.token_ids_activate": [27, 1000, 19],
    "adapters.token_ids_substitute": [3, 23, 5],
}

TINY = {
    "dense": Tiny(keys=KEYS),
    # No RoPE, no scales; a weaker router.
    "plain": Tiny(
        keys={
            **{
                k: v
                for k, v in KEYS.items()
                if k.split(".")[-1] not in ("scale", "embedding_scale", "residual_scale")
            },
            "rope.scaling.finetuned": False,
            "adapters.router_gain": 9.0,
        },
        without=["output.weight"],
        gain={"*.attn_output.*": 0.5, "*.ffn_down.*": 0.5},
        familiar=True,
    ),
}

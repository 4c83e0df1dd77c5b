"""Tiny models of Nemotron-H with experts."""

from dev.tiny_models import Tiny
from dev.tiny_models.nemotron_h import GAIN, KEYS

# Layers: experts, attention, Mamba, other experts; then NextN.
MOE = {
    **KEYS,
    "block_count": 5,
    "nextn_predict_layers": 1,
    "feed_forward_length": [96, 0, 0, 96, 0],
    "attention.head_count_kv": [0, 2, 0, 0, 2],
    "expert_feed_forward_length": [48, 0, 0, 32, 40],
    "expert_shared_feed_forward_length": 80,
    "expert_count": 6,
    "expert_used_count": 3,
    "expert_weights_norm": True,
    "expert_weights_scale": 2.5,
    "moe_latent_size": 48,
}
# No latent space, no FFN sizes of expert layers, no NextN layer.
PLAIN = {
    **MOE,
    "block_count": 3,
    "feed_forward_length": [0, 96, 0],
    "attention.head_count_kv": [2, 0, 0],
}
for key in (
    "nextn_predict_layers",
    "expert_feed_forward_length",
    "expert_weights_scale",
    "expert_weights_norm",
    "moe_latent_size",
    "attention.layer_norm_rms_epsilon",
):
    del PLAIN[key]

TINY = {
    "mtp": Tiny(
        keys=MOE,
        without=["*.nextn.embed_tokens.*", "*.nextn.shared_head_head.*", "*.nextn.eh_proj.scale"],
        gain=GAIN,
    ),
    "plain": Tiny(keys=PLAIN, without=["output.weight", "*.attn_*.bias"], familiar=True),
}

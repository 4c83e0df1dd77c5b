"""Tiny models of Hunyuan 3."""

from dev.tiny_models import MOE, Tiny

# Layers: dense, with experts, and NextN.
KEYS = {
    **MOE,
    "block_count": 3,
    "nextn_predict_layers": 1,
    "expert_shared_feed_forward_length": 80,
    "expert_weights_norm": True,
    "expert_weights_scale": 2.5,
    "attention.layer_norm_rms_epsilon": 1e-5,
}
EXPERTS = ["blk.0.ffn_gate_inp.weight"]

TINY = {
    "mtp": Tiny(
        keys=KEYS, without=EXPERTS, gain={"*.ffn_gate_inp.weight": 2}, familiar=True
    ),
    # One matrix for gate and up; the NextN layer uses the trunk's embeddings and norm.
    "merged": Tiny(
        keys=KEYS,
        without=[*EXPERTS, "output.weight", "*.bias", "*.scale", "*.nextn.shared_*",
                 "*.nextn.embed_*"],
        keep=["*.ffn_gate_up_exps.weight"],
        gain={"*.ffn_gate_inp.weight": 2, "token_embd.weight": 0.5},
        familiar=True,
    ),
}  # fmt: skip

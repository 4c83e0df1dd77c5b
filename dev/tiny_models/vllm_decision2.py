"""Tiny models of vLLM's decision models."""

from dev.tiny_models import WIDE, Tiny

KEYS = {
    **WIDE,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "attention.layer_norm_epsilon": 1e-5,
    "rope.freq_base": 1e6,
}

# an option, the question, and three options; the second one has a single token
MARKS = "4440044000111110044440044004000000000000"

TINY = {
    "dense": Tiny(
        keys=KEYS,
        unread={"decision.key.weight": (64, 40)},
        without=["*.bias", "output.weight"],
        keep=["decision.*.bias"],
        newest=True,
        marks=MARKS,
        pooling=["cls"],
    ),
    # attention's matrices are one, with biases
    "joint": Tiny(
        keys=KEYS,
        without=["blk.*.attn_[qkv].*"],
        keep=["*.attn_qkv.*"],
        newest=True,
        marks="4400222044004440" + "0" * 20 + "4400",
    ),
}

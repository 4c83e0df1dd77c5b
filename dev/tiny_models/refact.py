"""Tiny models of Refact."""

from dev.tiny_models import MOE, WIDE, Tiny

KEYS = {**WIDE, "attention.head_count_kv": 1, "attention.layer_norm_rms_epsilon": 1e-5}
GAIN = {"*.attn_[qk].weight": 2}
EXPERTS = {
    "ffn_gate_inp": (64, 6),
    "ffn_gate_exps": (64, 96, 6),
    "ffn_up_exps": (64, 96, 6),
    "ffn_down_exps": (96, 64, 6),
}

TINY = {
    "dense": Tiny(keys=KEYS, gain=GAIN, familiar=True),
    # llama.cpp requires these tensors but does not use them.
    "moe": Tiny(
        keys={**MOE, **KEYS},
        gain=GAIN,
        unread={f"blk.{il}.{stem}.weight": ne for il in range(2) for stem, ne in EXPERTS.items()},
        familiar=True,
    ),
}

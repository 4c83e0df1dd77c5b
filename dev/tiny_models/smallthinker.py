"""Tiny models of SmallThinker."""

from dev.tiny_models import MOE, Tiny

# Windows always have 4096 tokens, so a prompt begins before them.
KEYS = {
    **MOE,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "expert_gating_func": 2,
    "context_length": 16384,
}

TINY = {
    "windows": Tiny(
        keys={
            **KEYS,
            "block_count": 3,
            "attention.sliding_window": 7,
            "attention.sliding_window_pattern": 2,
            "rope.freq_base_swa": 5e3,
        },
        without=["*.bias"],
        gain={"*.ffn_gate_inp.weight": 2},
        familiar=True,
    ),
    "plain": Tiny(keys=KEYS, gain={"*.ffn_gate_inp.weight": 2}, familiar=True),
}

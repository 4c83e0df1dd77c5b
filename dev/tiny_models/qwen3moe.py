"""Tiny models of Qwen3 with mixture of experts."""

from dev.tiny_models import MOE, Tiny

TINY = {
    "moe": Tiny(
        keys={**MOE, "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e6},
        without=["*.bias"],
        gain={"*.ffn_gate_inp.weight": 2},
    )
}

"""Tiny models of LLaDA with experts."""

from dev.tiny_models import EXPERTS, SIZES, Tiny

TINY = {
    "moe": Tiny(
        keys={**SIZES, **EXPERTS, "attention.layer_norm_rms_epsilon": 1e-5},
        gain={"*.ffn_gate_inp.weight": 2},
        familiar=True,
    )
}

"""Tiny models of Qwen3 with mixture of experts."""

from dev.tiny_models import MOE, Tiny
from dev.tiny_models._hadamard import ATTENTION, folded_keys

KEYS = {**MOE, "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e6}
GAIN = {"*.ffn_gate_inp.weight": 2}
EXPERTS = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")

TINY = {
    "moe": Tiny(keys=KEYS, without=["*.bias"], gain=GAIN),
    "hadamard": Tiny(
        keys={**KEYS, **folded_keys([[*ATTENTION, *EXPERTS]] * 2, [128, 64, 48])},
        without=["*.bias"],
        gain=GAIN,
        familiar=True,
        newest=True,
    ),
}

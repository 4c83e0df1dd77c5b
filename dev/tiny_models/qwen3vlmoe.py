"""Tiny models of Qwen3-VL with mixture of experts."""

from dev.tiny_models import EXPERTS, Tiny
from dev.tiny_models.qwen3vl import KEYS

# Two of the experts: of three, the last would be chosen by the rounding of a cache.
TINY = {
    "moe": Tiny(
        keys={**KEYS, **EXPERTS, "expert_used_count": 2},
        gain={"*.ffn_gate_inp.weight": 2},
        familiar=True,
    )
}

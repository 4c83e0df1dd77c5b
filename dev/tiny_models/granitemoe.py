"""Tiny models of Granite 3 with experts."""

from dev.tiny_models import WIDE, Tiny
from dev.tiny_models.granite import SCALES

TINY = {
    "moe": Tiny(
        keys={**WIDE, **SCALES, "expert_count": 5, "expert_used_count": 2},
        gain={"*.ffn_gate_inp.weight": 2},
        familiar=True,
    )
}

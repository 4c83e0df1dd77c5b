"""Tiny models of Nomic Embed 2."""

from dev.tiny_models import Tiny
from dev.tiny_models._bert import KEYS

TINY = {
    "moe": Tiny(
        keys={**KEYS, "expert_count": 6, "expert_used_count": 2, "moe_every_n_layers": 2},
        without=["*.ffn_gate_exps.*", "token_types.*"],
        gain={"*.ffn_gate_inp.weight": 2, "*.attn_[qk].weight": 2},
        familiar=True,
        pooling=["none", "cls"],
    )
}

"""Tiny models of Nomic Embed 1."""

from dev.tiny_models import Tiny
from dev.tiny_models._bert import KEYS

TINY = {
    "dense": Tiny(
        keys={**KEYS, "rope.freq_base": 1000.0, "rope.dimension_count": 12},
        keep=["*.attn_qkv.weight"],
        gain={"*.attn_qkv.weight": 2},
        familiar=True,
        pooling=["none", "mean"],
    )
}

"""Tiny models of Jina Embeddings 3."""

from dev.tiny_models import Tiny
from dev.tiny_models._bert import KEYS

TINY = {
    "dense": Tiny(
        keys={**KEYS, "rope.freq_base": 1000.0},
        gain={"*.attn_[qk].weight": 2},
        familiar=True,
        pooling=["none", "mean"],
    )
}

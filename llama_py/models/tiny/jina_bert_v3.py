"""Tiny models of Jina Embeddings 3."""

from llama_py.models.tiny import Tiny
from llama_py.models.tiny._bert import KEYS

TINY = {
    "dense": Tiny(
        keys={**KEYS, "rope.freq_base": 1000.0},
        gain={"*.attn_[qk].weight": 2},
        familiar=True,
        pooling=["none", "mean"],
    )
}

"""Tiny models of Jina Embeddings 2 and their rerankers."""

from dev.tiny_models import Tiny
from dev.tiny_models._bert import KEYS

TINY = {
    "gated": Tiny(
        keys=KEYS,
        without=["*.ffn_gate.bias"],
        gain={"*.attn_[qk]_norm.weight": 2},
        pooling=["none", "mean"],
    ),
    # Gate and up in one tensor; no norms that the first models lack; their classifier.
    "rank": Tiny(
        keys={**KEYS, "pooling_type": 4},
        keep=["cls.*"],
        without=["*.ffn_gate.*", "*.attn_[qk]_norm.*", "*.attn_norm_2.*", "*.attn_[qkv].bias"],
        gain={"*.attn_[qk].weight": 2},
        unread={f"blk.{il}.ffn_up.weight": (64, 192) for il in range(2)},
        familiar=True,
        pooling=["rank"],
    ),
}

"""Tiny models of T5's encoder."""

from dev.tiny_models import Tiny
from dev.tiny_models.t5 import GAIN, KEYS

TINY = {
    "gated": Tiny(
        keys={k: v for k, v in KEYS.items() if not k.startswith("decoder")},
        without=["*blk.[12].attn_rel_b.*", "output.weight"],
        gain=GAIN,
        familiar=True,
        pooling=["none", "mean"],
    )
}

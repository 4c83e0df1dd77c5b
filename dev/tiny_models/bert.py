"""Tiny models of BERT."""

from dev.tiny_models import Tiny
from dev.tiny_models._bert import KEYS

TINY = {
    "dense": Tiny(keys=KEYS, pooling=["none", "mean", "cls", "last"]),
    "rank": Tiny(
        keys={**KEYS, "pooling_type": 4, "classifier.output_labels": ["no", "yes", "perhaps"]},
        keep=["cls.*"],
        without=["token_types.*", "*attn*.bias"],
        pooling=["rank"],
    ),
}

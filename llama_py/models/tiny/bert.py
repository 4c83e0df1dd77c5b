"""Tiny models of BERT."""

from llama_py.models.tiny import Tiny
from llama_py.models.tiny._bert import KEYS

TINY = {
    "dense": Tiny(keys=KEYS, pooling=["none", "mean", "cls", "last"]),
    "rank": Tiny(
        keys={**KEYS, "pooling_type": 4, "classifier.output_labels": ["no", "yes", "perhaps"]},
        keep=["cls.*"],
        without=["token_types.*", "*attn*.bias"],
        pooling=["rank"],
    ),
}

"""Tiny models of BERT."""

from llama_py.models.tiny import Tiny

KEYS = {
    "block_count": 2,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "attention.head_count": 4,
    "attention.layer_norm_epsilon": 1e-5,
    "attention.causal": False,
    "/tokenizer.ggml.token_type_count": 2,
}

TINY = {
    "dense": Tiny(keys=KEYS, pooling=["none", "mean", "cls", "last"]),
    "rank": Tiny(
        keys={**KEYS, "pooling_type": 4, "classifier.output_labels": ["no", "yes", "perhaps"]},
        keep=["cls.*"],
        without=["token_types.*", "*attn*.bias"],
        pooling=["rank"],
    ),
}

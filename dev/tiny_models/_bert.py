"""Sizes of BERT and its children."""

from typing import Any

KEYS: dict[str, Any] = {
    "block_count": 2,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "attention.head_count": 4,
    "attention.layer_norm_epsilon": 1e-5,
    "attention.causal": False,
    "/tokenizer.ggml.token_type_count": 2,
}

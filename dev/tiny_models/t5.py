"""Tiny models of T5 and Flan-T5."""

from dev.tiny_models import Tiny

# Fewer layers decode than encode; the buckets of far positions are in use too.
KEYS = {
    "block_count": 3,
    "decoder_block_count": 2,
    "decoder_start_token_id": 0,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "attention.head_count": 4,
    "attention.key_length": 24,
    "attention.value_length": 24,
    "attention.relative_buckets_count": 8,
    "attention.layer_norm_rms_epsilon": 1e-6,
}
# Scores are not divided by the root of the head's size, and the largest are by position.
GAIN = {"*attn_q.weight": 0.3, "*attn_rel_b.weight": 8.0}

TINY = {
    "dense": Tiny(keys=KEYS, without=["*ffn_gate.*", "dec.blk.1.attn_rel_b.*"], gain=GAIN),
    "gated": Tiny(keys=KEYS, without=["*blk.[12].attn_rel_b.*", "output.weight"], gain=GAIN),
}

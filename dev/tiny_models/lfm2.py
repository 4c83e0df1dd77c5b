"""Tiny models of LFM2."""

from dev.tiny_models import Tiny

# Layers: convolution, attention, convolution.
DENSE = {
    "block_count": 3,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "attention.head_count": 4,
    "attention.head_count_kv": [0, 2, 0],
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.freq_base": 1e6,
    "shortconv.l_cache": 3,
}
# Layers: attention, convolution, attention.
WINDOW = {
    **DENSE,
    "attention.head_count_kv": [2, 0, 1],
    "attention.sliding_window": 9,
    "shortconv.l_cache": 4,
}
CENTRED = {**DENSE, "attention.causal": False, "embedding_length_out": 48, "shortconv.l_cache": 5}
GAIN = {"*.shortconv.out_proj.*": 0.8, "*.attn_output.weight": 1.6}

TINY = {
    "dense": Tiny(keys=DENSE, without=["dense_2.*"], gain=GAIN, pooling=("none", "last")),
    "window": Tiny(
        keys=WINDOW, without=["dense_2.*", "*.attn_?.bias", "output.weight"],
        gain=GAIN | {"token_embd.weight": 0.4},
    ),
    # one sequence: llama.cpp would split longer sequences
    "centred": Tiny(keys=CENTRED, gain=GAIN, sequences=1, pooling=("none", "mean")),
    # a head that scores tokens for questions of three kinds, after three layers
    "decision": Tiny(
        keys={
            **DENSE,
            "block_count": 5,
            "attention.head_count_kv": [0, 2, 0, 4, 4],
            "attention.causal": False,
            "attention.layer_norm_epsilon": 1e-5,
            "decision.block_count": 2,
            "/tokenizer.ggml.token_type_count": 3,
        },
        keep=["*.attn_qkv.weight", "cls.*"], without=["*.attn_[qkv].bias", "blk.[0-2].attn_qkv.*"],
        gain=GAIN, newest=True, pooling=["none"],
        runs=["nodes-fa-on", "nodes-fa-off", "nodes-pooled-none", "pooled-none"],
    ),
}  # fmt: skip

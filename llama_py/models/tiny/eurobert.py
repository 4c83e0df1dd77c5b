"""Tiny models of EuroBERT."""

from llama_py.models.tiny import SIZES, Tiny

TINY = {
    "dense": Tiny(
        keys={
            **SIZES,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "attention.causal": False,
            "rope.freq_base": 250000.0,
        },
        gain={"*.attn_[qk].weight": 2},
        familiar=True,
        pooling=["none", "last"],
    )
}

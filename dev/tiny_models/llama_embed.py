"""Tiny models of Llama for embeddings."""

from dev.tiny_models import SIZES, Tiny

# One sequence: llama.cpp splits several into equal parts, which cannot attend to each other.
TINY = {
    "dense": Tiny(
        keys={
            **SIZES,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "rope.dimension_count": 16,
            "attention.causal": False,
        },
        without=["*.ffn_gate_exps.*"],
        gain={"*.attn_[qk].weight": 2},
        familiar=True,
        sequences=1,
        pooling=["none", "mean"],
    )
}

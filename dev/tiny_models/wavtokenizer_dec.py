"""Tiny models of WavTokenizer's decoder."""

from dev.tiny_models import Tiny

TINY = {
    "dense": Tiny(
        keys={
            "block_count": 6,
            "features_length": 48,
            "embedding_length": 80,
            "feed_forward_length": 96,
            "posnet.embedding_length": 64,
            "posnet.block_count": 6,
            "convnext.embedding_length": 64,
            "convnext.block_count": 2,
            "attention.layer_norm_epsilon": 1e-6,
            "attention.group_norm_epsilon": 1e-6,
            "attention.group_norm_groups": 8,
        },
        mean={"*.gamma.weight": 0.5},
        # Convolution matrices have values as if each summed over one channel.
        gain={
            "conv1d.weight": 0.15,
            "posnet.*.conv?.weight": 0.15,
            "posnet.2.attn_[qkvo]*.weight": 0.2,
        },
        sequences=1,
        pooling=["none"],
    )
}

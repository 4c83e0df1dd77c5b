"""EmbeddingGemma 2, about one billion weights or fewer."""

from dev.compare.bench_model.declared import WINDOWS, newest

SIZES = newest(
    __name__,
    WINDOWS,
    {
        "attention.key_length_swa": 64,
        "attention.value_length_swa": 64,
        "embedding_length_per_layer_input": 64,
        "rope.dimension_count_swa": 64,
        "rope.freq_base_swa": 1e4,
        "pooling_type": 1,
    },
)

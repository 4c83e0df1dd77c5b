"""Beam, about one billion weights or fewer."""

from dev.compare.bench_model.declared import EXPERTS, WINDOWS, newest

SIZES = newest(
    __name__,
    EXPERTS,
    WINDOWS,
    {
        "attention.temperature_scale": 0.1,
        "attention.temperature_length": 8192,
        "leading_dense_block_count": 1,
        "expert_weights_norm": True,
        "expert_weights_scale": 2.5,
        "rope.freq_base_swa": 1e4,
    },
)

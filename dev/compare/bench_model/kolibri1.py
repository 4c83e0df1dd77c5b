"""Kolibri 1, about one billion weights or fewer."""

from dev.compare.bench_model.declared import EXPERTS, WINDOWS, newest

SIZES = newest(
    __name__,
    EXPERTS,
    WINDOWS,
    {
        "expert_shared_count": 1,
        "expert_shared_feed_forward_length": 512,
        "expert_gating_func": 2,
        "expert_weights_norm": True,
    },
)

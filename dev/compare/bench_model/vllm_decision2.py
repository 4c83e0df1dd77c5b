"""vLLM's decision model, about one billion weights or fewer."""

from dev.compare.bench_model.declared import newest

SIZES = newest(__name__, {"attention.layer_norm_epsilon": 1e-5})

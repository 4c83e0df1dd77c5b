"""Commands for compiled kernels: warmup and cache."""

"""Maion Coder, about one billion weights or fewer."""

from dev.compare.bench_model.declared import EXPERTS, WINDOWS, newest

SIZES = newest(__name__, EXPERTS, WINDOWS, {"interleave_moe_layer_step": 2, "moe_latent_size": 512})

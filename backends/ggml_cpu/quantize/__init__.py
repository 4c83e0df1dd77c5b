"""Quantization of weights, bit-exact to ggml-quants.c, with or without an importance matrix."""

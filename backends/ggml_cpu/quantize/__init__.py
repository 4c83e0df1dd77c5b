"""Quantizing weights: the types' blocks as ggml-quants.c makes them, with importance or without."""

"""Compiled kernels: warm-up and cache."""

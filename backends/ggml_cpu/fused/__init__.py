"""Kernels that run several nodes at once, one family a file (see fusion.py)."""

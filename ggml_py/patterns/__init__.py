"""Patterns of steps that several backends have, one family per file (ggml_py/fusion/pattern.py)."""

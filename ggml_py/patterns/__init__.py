"""Patterns that several backends have a step for, one family a file (ggml_py/fusion/pattern.py)."""

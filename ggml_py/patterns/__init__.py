"""Patterns that several backends have a step for, one family a file (see ggml_py/pattern.py)."""

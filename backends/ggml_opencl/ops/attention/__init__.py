"""Launchers of ggml_py/ops/attention.py."""

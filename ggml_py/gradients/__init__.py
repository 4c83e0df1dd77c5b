"""Gradients of ops, in files named as the families in ggml_py/ops (ggml.c:ggml_compute_backward).

`@gradient("MUL", 1)` declares the gradient with respect to source 1. `ggml_py.backward` builds
graphs with them.
"""

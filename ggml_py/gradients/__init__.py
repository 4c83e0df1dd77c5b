"""Gradients of ops, in files named as the families in ggml_py/ops (ggml.c:ggml_compute_backward).

`@gradient("MUL", 1)` declares the gradient with respect to source 1. `build_backward_expand` adds
the gradients to a graph.
"""

from ggml_py.gradients._graph import all_gradients as all_gradients
from ggml_py.gradients._graph import build_backward_expand as build_backward_expand

"""Gradients of RoPE (ggml_py/ops/rope.py)."""

from __future__ import annotations

from ggml_py.gradients._declare import gradient, source
from ggml_py.ops import rope_ext_back
from ggml_py.tensor import Tensor


@gradient("ROPE")
def rope(t: Tensor, grad: Tensor) -> Tensor:
    factors = t.src[2] if len(t.src) > 2 else None
    factor = t.params[:9]  # n_dims .. beta_slow
    sections, n_offs = t.params[9:13], t.param("n_offs")
    return rope_ext_back(grad, source(t, 1), factors, *factor, sections, n_offs)  # type: ignore[call-arg]

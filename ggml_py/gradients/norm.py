"""Gradients of norms (ggml_py/ops/norm.py)."""

from __future__ import annotations

from ggml_py.gradients._declare import gradient, source
from ggml_py.ops import rms_norm_back
from ggml_py.tensor import Tensor


@gradient("RMS_NORM")
def rms_norm(t: Tensor, grad: Tensor) -> Tensor:
    return rms_norm_back(grad, source(t, 0), t.param("eps"))

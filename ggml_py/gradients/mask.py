"""Gradients of masks (ggml_py/ops/mask.py)."""

from __future__ import annotations

from ggml_py.gradients._declare import gradient
from ggml_py.ops import diag_mask_zero
from ggml_py.tensor import Tensor


@gradient("DIAG_MASK_INF")
@gradient("DIAG_MASK_ZERO")
def diag_mask_a(t: Tensor, grad: Tensor) -> Tensor:
    return diag_mask_zero(grad, t.param("n_past"))

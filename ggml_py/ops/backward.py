"""Gradients of ops with respect to their sources."""

from __future__ import annotations

from ggml_py.ops.registry import node, op, require
from ggml_py.tensor import Tensor
from ggml_py.types import F32, I32


def _alike(name: str, grad: Tensor, x: Tensor) -> None:
    fits = grad.ne == x.ne and grad.type is F32 and x.type is F32
    require(fits, f"{name}: both must be f32 of the same shape", grad, x)


@op("RMS_NORM_BACK", "eps:f", inplace=True)
def rms_norm_back(grad: Tensor, x: Tensor, eps: float) -> Tensor:
    """Backpropagate a gradient through rms_norm(x, eps) (ggml.c:ggml_rms_norm_back).

    With m = mean(x^2) + eps along dimension 0: (grad - x * mean(x * grad) / m) / sqrt(m).
    """
    _alike("rms_norm_back", grad, x)
    require(
        grad.has_contiguous_rows() and x.has_contiguous_rows(),
        "rms_norm_back: rows must be dense",
        grad,
        x,
    )
    return node("RMS_NORM_BACK", grad.type, grad.ne, grad, x, params=(eps,))


@op("SILU_BACK", inplace=True)
def silu_back(grad: Tensor, x: Tensor) -> Tensor:
    """Backpropagate a gradient through silu(x) (ggml.c:ggml_silu_back)."""
    _alike("silu_back", grad, x)
    return node("SILU_BACK", grad.type, grad.ne, grad, x)


@op("SOFT_MAX_BACK", "scale:f max_bias:f", inplace=True)
def soft_max_ext_back(grad: Tensor, y: Tensor, scale: float, max_bias: float) -> Tensor:
    """Backpropagate a gradient through y = soft_max_ext(x) (ggml.c:ggml_soft_max_ext_back).

    Each row along dimension 0: scale * y * (grad - <y, grad>). The op stores max_bias, but does
    not use it.
    """
    _alike("soft_max_back", grad, y)
    return node("SOFT_MAX_BACK", grad.type, grad.ne, grad, y, params=(scale, max_bias))


@op("GET_ROWS_BACK")
def get_rows_back(grad: Tensor, ids: Tensor, a: Tensor) -> Tensor:
    """Backpropagate a gradient through get_rows(a, ids) (ggml.c:ggml_get_rows_back).

    Adds row i of grad to row ids[i] of the result. grad [n, r], ids I32 [r], a [n, rows] (shape
    only) -> F32 like a
    """
    matrices = all(t.ne[2] == t.ne[3] == 1 for t in (grad, a))
    require(
        matrices and grad.ne[0] == a.ne[0], "get_rows_back: grad must be [n, r], a [n, m]", grad, a
    )
    require(
        ids.type is I32 and ids.ne == (grad.ne[1], 1, 1, 1),
        "get_rows_back: ids must be i32 [r]",
        ids,
        grad,
    )
    return node("GET_ROWS_BACK", F32, a.ne, grad, ids)


@op("REPEAT_BACK")
def repeat_back(grad: Tensor, a: Tensor) -> Tensor:
    """The gradient of repeat(a, grad): grad's tiles added up (ggml.c:ggml_repeat_back)."""
    require(a.can_repeat_to(grad), "repeat_back: grad must be a multiple of a", grad, a)
    return node("REPEAT_BACK", grad.type, a.ne, grad)

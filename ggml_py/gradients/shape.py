"""Gradients of views (ggml_py/ops/shape.py)."""

from __future__ import annotations

from ggml_py.gradients._declare import gradient, reshape_like, source
from ggml_py.ops import acc, fill, permute, transpose
from ggml_py.ops.registry import require
from ggml_py.tensor import MAX_DIMS, Tensor


@gradient("RESHAPE")
def reshape_a(t: Tensor, grad: Tensor) -> Tensor:
    return reshape_like(grad, source(t, 0))


@gradient("VIEW")
def view_a(t: Tensor, grad: Tensor) -> Tensor:
    a = source(t, 0)
    require(a.is_contiguous(), "the gradient of a view: its source must be contiguous", t, a)
    require(not _overlaps(t), "the gradient of a view: its rows must not overlap", t, a)
    return acc(fill(a, 0.0), grad, *t.nb[1:], t.param("offset"))


def _overlaps(t: Tensor) -> bool:
    """Return True if the view shows some element twice."""
    end = 0
    for nb, ne in sorted(zip(t.nb, t.ne, strict=True)):
        if ne > 1 and nb < end:
            return True
        end = max(end, nb * ne)
    return False


@gradient("PERMUTE")
def permute_a(t: Tensor, grad: Tensor) -> Tensor:
    return permute(grad, *(t.params.index(i) for i in range(MAX_DIMS)))


@gradient("TRANSPOSE")
def transpose_a(t: Tensor, grad: Tensor) -> Tensor:
    return transpose(grad)

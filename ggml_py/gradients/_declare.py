"""Declaration of gradients, and helpers that several gradients need."""

from __future__ import annotations

from collections.abc import Callable

from ggml_py.ops import cont, repeat_back, reshape
from ggml_py.tensor import Tensor

Gradient = Callable[[Tensor, Tensor], Tensor]

GRADIENTS: dict[tuple[str, int], Gradient | None] = {}


def gradient(op: str, src: int = 0) -> Callable[[Gradient], Gradient]:
    """Declare d loss / d source `src` of an op, made of the node t and grad = d loss / d t."""

    def register(make: Gradient) -> Gradient:
        _add(op, src, make)
        return make

    return register


def constant(op: str, src: int = 0) -> None:
    """Declare that the gradient with respect to the source is zero almost everywhere."""
    _add(op, src, None)


def _add(op: str, src: int, make: Gradient | None) -> None:
    if (op, src) in GRADIENTS:
        raise ValueError(f"the gradient of {op}, source {src}, is declared twice")
    GRADIENTS[op, src] = make


def source(t: Tensor, i: int) -> Tensor:
    """Return source i, which must not be None."""
    s = t.src[i]
    assert s is not None
    return s


def dense(t: Tensor) -> Tensor:
    return t if t.is_contiguous() else cont(t)


def reshape_like(grad: Tensor, like: Tensor) -> Tensor:
    """Return the same elements in the shape of another tensor."""
    return grad if grad.ne == like.ne else reshape(dense(grad), *like.ne)


def sum_repeats(grad: Tensor, like: Tensor) -> Tensor:
    """Return the gradient of a tensor that was repeated to grad's shape."""
    return grad if grad.ne == like.ne else repeat_back(grad, like)

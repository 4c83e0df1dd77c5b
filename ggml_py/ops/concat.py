"""Tensors side by side: two, or one again and again."""

from __future__ import annotations

from ggml_py.ops.registry import node, op, require, view_result
from ggml_py.tensor import MAX_DIMS, Tensor


@op("CONCAT", "dim:i")
def concat(a: Tensor, b: Tensor, dim: int) -> Tensor:
    """b after a along `dim`; all other dimensions equal (ggml.c:ggml_concat)."""
    require(0 <= dim < MAX_DIMS, f"concat: dim must be 0..3, got {dim}", a, b)
    require(a.type is b.type, "concat: both must have the same type", a, b)
    same = all(a.ne[i] == b.ne[i] for i in range(MAX_DIMS) if i != dim)
    require(same, f"concat: all dimensions but {dim} must be equal", a, b)
    ne = tuple(a.ne[i] + (b.ne[i] if i == dim else 0) for i in range(MAX_DIMS))
    return node("CONCAT", a.type, ne, a, b, params=(dim,))


def concat_inplace(a: Tensor, b: Tensor, result: Tensor, dim: int) -> Tensor:
    """Concatenate into `result`, which has the type and shape of the concatenation. `a` may
    already be stored there (ik_llama.cpp ggml.c:ggml_concat_inplace). -> a view of result
    """
    t = concat(a, b, dim)
    fits = t.ne == result.ne and t.type is result.type
    require(fits, f"concat_inplace: result must be {t.type} {list(t.ne)}", a, b, result)
    return view_result("CONCAT", result, a, b, result, params=(dim,))


@op("REPEAT")
def repeat_4d(a: Tensor, ne0: int, ne1: int, ne2: int, ne3: int) -> Tensor:
    """Tile a to [ne0, ne1, ne2, ne3], each a multiple of a's (ggml.c:ggml_repeat_4d)."""
    ne = (ne0, ne1, ne2, ne3)
    t = node("REPEAT", a.type, ne, a)
    fits = min(ne) >= 0 and a.can_repeat_to(t)
    require(fits, f"repeat: {list(ne)} must be a multiple of the source in each dimension", a)
    return t


def repeat(a: Tensor, b: Tensor) -> Tensor:
    """Tile a to b's shape (ggml.c:ggml_repeat)."""
    return repeat_4d(a, *b.ne)

"""Indices among the data of an op."""

from __future__ import annotations

from ggml_py.backend.indices import out_of_range
from ggml_py.tensor import Tensor
from ggml_ref.values import Integers


def check_indices(node: Tensor, ids: Integers, n: int) -> Integers:
    """Return the indices; OutOfRange for the first that is not in range(n)."""
    wrong = ids[(ids < 0) | (ids >= n)]
    if wrong.size:
        raise out_of_range(node, int(wrong.flat[0]), n)
    return ids

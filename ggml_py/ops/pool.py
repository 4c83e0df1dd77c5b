"""Pooling: the largest or mean value of a window."""

from __future__ import annotations

from ggml_py.ops.registry import node, op, require
from ggml_py.tensor import Tensor
from ggml_py.types import F32

POOL = {"max": 0, "avg": 1}


def _output_size(a: Tensor, i: int, k: int, s: int, p: float) -> int:
    """Return the number of windows along dimension i (ggml.c:ggml_calc_pool_output_size)."""
    valid = k > 0 and s > 0 and p >= 0
    require(valid, f"pool: window {k} and stride {s} must be positive, padding {p} not negative", a)
    n = int((a.ne[i] + 2 * p - k) / s + 1)
    require(n > 0, f"pool: the padded row is shorter than the window of {k}", a)
    return n


def _kind(kind: str, a: Tensor) -> int:
    require(kind in POOL, f"pool: kind must be max or avg, got {kind!r}", a)
    return POOL[kind]


@op("POOL_1D", "kind:i k0:i s0:i p0:i")
def pool_1d(a: Tensor, kind: str, k0: int, s0: int, p0: int) -> Tensor:
    """Along dimension 0, kind "max" or "avg" (ggml.c:ggml_pool_1d). [n, ...] -> F32 [windows, ...]

    A mean counts only elements inside a; a window wholly in the padding gives 0 (max: -FLT_MAX).
    """
    ne = (_output_size(a, 0, k0, s0, p0), *a.ne[1:])
    return node("POOL_1D", F32, ne, a, params=(_kind(kind, a), k0, s0, p0))


@op("POOL_2D", "kind:i k0:i k1:i s0:i s1:i p0:i p1:i")
def pool_2d(
    a: Tensor, kind: str, k0: int, k1: int, s0: int, s1: int, p0: float, p1: float
) -> Tensor:
    """Along dimensions 0 and 1, kind "max" or "avg" (ggml.c:ggml_pool_2d).

    A mean divides by k0*k1 also at the border. Half paddings count in the result's size only.
    """
    ne = (_output_size(a, 0, k0, s0, p0), _output_size(a, 1, k1, s1, p1), *a.ne[2:])
    params = (_kind(kind, a), k0, k1, s0, s1, int(p0), int(p1))
    return node("POOL_2D", F32, ne, a, params=params)

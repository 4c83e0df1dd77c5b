"""Normalization ops of rows."""

from __future__ import annotations

from ggml_py.ops.registry import node, op, refuse, require, view_result
from ggml_py.tensor import Tensor


def _norm(name: str, a: Tensor, *params: float) -> Tensor:
    if not params[-1] >= 0:
        refuse(f"{name.lower()}: eps must not be negative, got {params[-1]}", a)
    return node(name, a.type, a.ne, a, params=params)


@op("RMS_NORM", "eps:f", inplace=True)
def rms_norm(a: Tensor, eps: float, inplace: bool = False) -> Tensor:
    """x / sqrt(mean(x^2) + eps) along dimension 0 (ggml.c:ggml_rms_norm)."""
    require(a.has_contiguous_rows(), "rms_norm: rows must be dense", a)
    t = _norm("RMS_NORM", a, eps)
    return view_result(t.op, a, a, params=t.params) if inplace else t


@op("NORM", "eps:f")
def norm(a: Tensor, eps: float) -> Tensor:
    """(x - mean) / sqrt(variance + eps) along dimension 0 (ggml.c:ggml_norm)."""
    return _norm("NORM", a, eps)


@op("L2_NORM", "eps:f")
def l2_norm(a: Tensor, eps: float) -> Tensor:
    """x / max(sqrt(sum(x^2)), eps) along dimension 0 (ggml.c:ggml_l2_norm)."""
    return _norm("L2_NORM", a, eps)


@op("GROUP_NORM", "n_groups:i eps:f")
def group_norm(a: Tensor, n_groups: int, eps: float) -> Tensor:
    """Normalise n_groups groups of dimension 2 over [ne0, ne1, group] (ggml.c:ggml_group_norm)."""
    require(n_groups > 0, f"group_norm: n_groups must be positive, got {n_groups}", a)
    return node("GROUP_NORM", a.type, a.ne, a, params=(n_groups, eps))

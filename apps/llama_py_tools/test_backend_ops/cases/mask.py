"""Test cases of ggml_py/ops/mask.py."""

from __future__ import annotations

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import F16, F32, GGMLType
from llama_py_tools.test_backend_ops.case import Leaves, case

Shape = tuple[int, ...]


@case("TRI", max_nmse=0, type=[F32], ne=[(n, n, 3, 2) for n in (1, 3, 10, 17, 64, 65)],
      tri_type=["lower", "lower_diag", "upper", "upper_diag"])
@case("TRI", perf=True, type=[F32], ne=[(64, 64, 32, 16)], tri_type=["lower"])
def tri(new: Leaves, type: GGMLType, ne: Shape, tri_type: str) -> Tensor:
    return ops.tri(new(ne, type), tri_type)


@case("FILL", type=[F32, F16], ne=[(1, 1, 1, 1), (33, 5, 3, 2), (257, 1, 1, 1)],
      c=[0.0, 2.0, -152.0])
@case("FILL", type=[F32], ne=[(10, 10, 4, 3), (2048, 65, 2, 2), (303, 207, 11, 1)], c=[3.5])
@case("FILL", type=[F32], ne=[(33, 5, 3, 2)], c=[2.0], inplace=[True])
@case("FILL", perf=True, type=[F32], ne=[(4096, 512, 1, 1)], c=[0.0])
def fill(new: Leaves, type: GGMLType, ne: Shape, c: float, inplace: bool = False) -> Tensor:
    return ops.fill(new(ne, type), c, inplace)


@case("DIAG_MASK_ZERO", type=[F32], ne=[(10, 10, 1, 1), (10, 10, 3, 2), (33, 17, 2, 1)],
      n_past=[0, 5])
@case("DIAG_MASK_ZERO", perf=True, type=[F32], ne=[(512, 512, 8, 1)], n_past=[0])
def diag_mask_zero(new: Leaves, type: GGMLType, ne: Shape, n_past: int) -> Tensor:
    return ops.diag_mask_zero(new(ne, type), n_past)


@case("DIAG_MASK_INF", type=[F32], ne=[(10, 10, 1, 1), (10, 10, 3, 2), (33, 17, 2, 1)],
      n_past=[0, 5])
@case("DIAG_MASK_INF", type=[F32], ne=[(10, 10, 3, 1)], n_past=[5])
@case("DIAG_MASK_INF", perf=True, type=[F32], ne=[(512, 512, 8, 1)], n_past=[0])
def diag_mask_inf(new: Leaves, type: GGMLType, ne: Shape, n_past: int) -> Tensor:
    return ops.diag_mask_inf(new(ne, type), n_past)

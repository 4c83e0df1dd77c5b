"""Cases of SOLVE_TRI and DIAG (ggml_py/ops/matrix.py)."""

from __future__ import annotations

import numpy as np

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import F32, GGMLType
from llama_py_tools.test_backend_ops.case import Array, Leaves, case, draws

Shape = tuple[int, ...]


def lower_triangle(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return a well-conditioned matrix; values above the diagonal must have no effect."""
    n = shape[-1]
    return rng.uniform(0.1, 1.0, shape) / n + np.where(
        np.eye(n, dtype=bool), rng.uniform(0.5, 2, shape), 0
    )


@case("SOLVE_TRI", type=[F32],
      ne_lhs=[(10, 10, 4, 3), (17, 17, 2, 4), (64, 64, 2, 2), (65, 65, 1, 3)],
      n_rhs=[1, 3, 33, 64])
@case("SOLVE_TRI", type=[F32], ne_lhs=[(1, 1, 5, 1), (3, 3, 1, 1), (128, 128, 2, 1)],
      n_rhs=[1, 17, 100])
@case("SOLVE_TRI", type=[F32],
      ne_lhs=[(11, 11, 1, 1), (30, 30, 7, 1), (42, 42, 5, 2), (80, 80, 2, 8), (128, 128, 4, 2)],
      n_rhs=[5, 10, 32, 79, 81])
@case("SOLVE_TRI", type=[F32], ne_lhs=[(79, 79, 2, 3), (64, 64, 2, 2)], n_rhs=[200, 384, 417])
@case("SOLVE_TRI", perf=True, type=[F32], ne_lhs=[(64, 64, 8, 32)], n_rhs=[64])
def solve_tri(new: Leaves, type: GGMLType, ne_lhs: Shape, n_rhs: int) -> Tensor:
    return ops.solve_tri(new(ne_lhs, type, lower_triangle), new((n_rhs, *ne_lhs[1:]), type))


@case("DIAG", max_nmse=0, type=[F32], ne=[(1, 1, 1, 1), (10, 1, 4, 3), (65, 1, 3, 1)],
      v=[False, True])
@case("DIAG", max_nmse=0, type=[F32], ne=[(79, 1, 19, 13), (256, 1, 8, 3)], v=[False])
@case("DIAG", perf=True, type=[F32], ne=[(64, 1, 32, 16)], v=[False])
def diag(new: Leaves, type: GGMLType, ne: Shape, v: bool) -> Tensor:
    return ops.diag(new.part(ne, type) if v else new(ne, type))


draws("SOLVE_TRI", 0, lambda t: lower_triangle)

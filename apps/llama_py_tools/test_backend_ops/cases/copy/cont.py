"""Cases of CONT and DUP (ggml_py/ops/copy.py)."""

from __future__ import annotations

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME, F16, F32, I32, GGMLType
from llama_py_tools.test_backend_ops.case import Leaves, case, uniform

Shape = tuple[int, ...]
BF16 = BY_NAME["bf16"]
I16 = BY_NAME["i16"]
WHOLE = uniform(-150, 150)
PERMUTATIONS: list[Shape] = [(0, 1, 2, 3), (1, 0, 2, 3), (0, 2, 1, 3), (3, 1, 0, 2), (0, 3, 1, 2)]


@case("CONT", max_nmse=0, type=[F32, F16, BF16, I32],
      ne=[(2, 1, 1, 1), (2, 3, 5, 7), (33, 5, 1, 1)], perm=PERMUTATIONS)
@case("CONT", max_nmse=0, type=[F32], ne=[(65, 17, 3, 2), (257, 100, 1, 1), (5, 0, 3, 1)],
      perm=PERMUTATIONS[:3])
@case("CONT", perf=True, type=[F32], ne=[(128, 512, 32, 1)], perm=[(0, 2, 1, 3), (1, 0, 2, 3)])
def cont(new: Leaves, type: GGMLType, ne: Shape, perm: Shape) -> Tensor:
    return ops.cont(new.permuted_view(ne, perm, type, WHOLE))


@case("CONT", max_nmse=0, type=[F32, F16], ne=[(10, 10, 10, 1), (64, 3, 65, 1), (1000, 33, 5, 1)],
      perm=[(0, 2, 1, 3), (2, 1, 0, 3), (2, 0, 1, 3), (1, 2, 0, 3)])
@case("CONT", max_nmse=0, type=[F32], ne=[(2304, 16, 9, 1), (9, 2304, 16, 1)],
      perm=[(2, 1, 0, 3), (1, 2, 0, 3)])
def cont_permuted(new: Leaves, type: GGMLType, ne: Shape, perm: Shape) -> Tensor:
    return ops.cont(new.permuted_view(ne, perm, type, WHOLE))


@case("CONT", max_nmse=0, type=[F32, F16, BF16, I32], ne=[(33, 5, 3, 2), (2, 1, 3, 5)],
      view=[True])
def cont_view(new: Leaves, type: GGMLType, ne: Shape, view: bool) -> Tensor:
    return ops.cont(new.part(ne, type, WHOLE))


@case("CONT", max_nmse=0, type=[F32, I32, F16], ne=[(1, 8, 17, 1), (10, 10, 10, 2)],
      half=[0, 1, 2])
def cont_half(new: Leaves, type: GGMLType, ne: Shape, half: int) -> Tensor:
    return ops.cont(new.second_half(ne, half, type, WHOLE))


@case("CONT", max_nmse=0, ne=[(6, 5, 4, 3)], perm=[(0, 2, 1, 3), (1, 0, 2, 3)],
      to=[(30, 12), (3, 120)])
def cont_shape(new: Leaves, ne: Shape, perm: Shape, to: Shape) -> Tensor:
    return ops.cont(new.permuted_view(ne, perm), *to)


@case("DUP", max_nmse=0, type=[F32, F16, I32], ne=[(10, 10, 20, 1), (33, 1, 1, 1)],
      perm=PERMUTATIONS[:3])
@case("DUP", max_nmse=0, type=[I16, BF16], ne=[(10, 8, 3, 1)],
      perm=[*PERMUTATIONS[:3], (1, 2, 0, 3), (2, 0, 1, 3)])
@case("DUP", perf=True, type=[F32], ne=[(4096, 512, 1, 1)], perm=PERMUTATIONS[:1])
def dup(new: Leaves, type: GGMLType, ne: Shape, perm: Shape) -> Tensor:
    return ops.dup(new.permuted_view(ne, perm, type, WHOLE))

"""Test cases of ggml_py/ops/backward.py."""

from __future__ import annotations

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import F16, F32, I32, GGMLType
from llama_py_tools.test_backend_ops.case import Leaves, case, draws, integers
from llama_py_tools.test_backend_ops.cases._long import BOUND, LONG, alike, long_row
from llama_py_tools.test_backend_ops.differences import IGNORES_STRIDES, differs_from_ggml

Shape = tuple[int, ...]


@case("RMS_NORM_BACK", type=[F32], ne=[(64, 5, 4, 3), (1025, 5, 4, 3)],
      eps=[0.0, 1e-6, 1e-4, 1e-1, 1.0, 10.0])
@case("RMS_NORM_BACK", type=[F32], ne=[(33, 5, 4, 3), (3, 3, 1, 1), (8, 0, 1, 1)], eps=[1e-6],
      v=[False, True])
@case("RMS_NORM_BACK", perf=True, type=[F32], ne=[(4096, 512, 1, 1)], eps=[1e-6])
def rms_norm_back(new: Leaves, type: GGMLType, ne: Shape, eps: float, v: bool = False) -> Tensor:
    make = new.part if v else new
    return ops.rms_norm_back(make(ne, type), make(ne, type), eps)


@case("SILU_BACK", type=[F32], ne=[(64, 5, 4, 3), (33, 3, 1, 1)], v=[False, True])
@case("SILU_BACK", perf=True, type=[F32], ne=[(4096, 512, 1, 1)], v=[False])
def silu_back(new: Leaves, type: GGMLType, ne: Shape, v: bool) -> Tensor:
    make = new.part if v else new
    return ops.silu_back(make(ne, type), make(ne, type))


@case("SOFT_MAX_BACK", max_nmse=1e-6, type=[F32],
      ne=[(16, 16, 1, 1), (15, 15, 1, 1), (16, 16, 2, 3), (16, 1024, 1, 1), (1024, 16, 1, 1),
          (1023, 15, 1, 1), (1024, 16, 2, 3)],
      scale=[1.0, 0.1], max_bias=[0.0, 8.0])
@case("SOFT_MAX_BACK", max_nmse=1e-6, type=[F32], ne=[(1024, 1024, 1, 1), (1023, 1023, 1, 1)],
      scale=[0.1], max_bias=[0.0])
@case("SOFT_MAX_BACK", max_nmse=1e-6, type=[F32], ne=[(15, 1023, 1, 1), (16, 1024, 2, 3)],
      scale=[1.0], max_bias=[0.0, 8.0])
@case("SOFT_MAX_BACK", max_nmse=1e-6, type=[F32], ne=[(33, 5, 2, 3)], scale=[0.1], max_bias=[0.0],
      v=[True])
@case("SOFT_MAX_BACK", perf=True, type=[F32], ne=[(512, 512, 8, 1)], scale=[0.1], max_bias=[0.0])
def soft_max_back(
    new: Leaves, type: GGMLType, ne: Shape, scale: float, max_bias: float, v: bool = False
) -> Tensor:
    make = new.part if v else new
    return ops.soft_max_ext_back(make(ne, type), make(ne, type), scale, max_bias)


@case("GET_ROWS_BACK", type=[F32], n=[1, 33, 256], m=[5, 8], r=[1, 2, 4, 33], v=[False, True])
@case("GET_ROWS_BACK", type=[F16], n=[1, 33, 256], m=[5], r=[4, 33], v=[False, True])
@case("GET_ROWS_BACK", type=[F32], n=[1], m=[70000], r=[4], v=[False])
@case("GET_ROWS_BACK", type=[F32], n=[33], m=[5], r=[0], v=[False])
@case("GET_ROWS_BACK", type=[F32], n=[256], m=[16400], r=[33], v=[False])  # larger than caches
@case("GET_ROWS_BACK", perf=True, type=[F32], n=[4096], m=[2048], r=[512], v=[False])
def get_rows_back(new: Leaves, type: GGMLType, n: int, m: int, r: int, v: bool) -> Tensor:
    """Build the op with repeated rows, which are summed. v: rows of the gradient have gaps."""
    grad = (new.part if v else new)((n, r), type)
    return ops.get_rows_back(grad, new((r,), I32, integers(0, m)), Tensor(F32, (n, m)))


@case("REPEAT_BACK", type=[F32], ne=[(8, 6, 4, 2), (33, 1, 3, 1)],
      nr=[(1, 1, 1, 1), (2, 1, 1, 1), (1, 2, 1, 1), (1, 1, 2, 1), (1, 1, 1, 2), (3, 2, 2, 2)],
      v=[False, True])
@case("REPEAT_BACK", type=[F32], ne=[(8, 6, 4, 2)], nr=[(2, 1, 1, 1), (1, 1, 2, 1)],
      half=[0, 1, 2])
@case("REPEAT_BACK", perf=True, type=[F32], ne=[(4096, 1, 1, 1)], nr=[(1, 512, 1, 1)], v=[False])
def repeat_back(
    new: Leaves, type: GGMLType, ne: Shape, nr: Shape, v: bool = False, half: int | None = None
) -> Tensor:
    shape = tuple(n * r for n, r in zip(ne, nr, strict=True))
    if half is not None:
        grad = new.second_half(shape, half, type)
    else:
        grad = (new.part if v else new)(shape, type)
    return ops.repeat_back(grad, Tensor(type, ne))


differs_from_ggml("SILU_BACK", IGNORES_STRIDES, v=[True])
differs_from_ggml("SILU_BACK", IGNORES_STRIDES, gaps=[0, 1])


draws("GET_ROWS_BACK", 1, lambda t: integers(0, t.ne[1]))


@case("SOFT_MAX_BACK", max_nmse=BOUND, long=LONG)
def long_soft_max_back(new: Leaves, long: str) -> Tensor:
    grad = long_row(new, long)
    return ops.soft_max_ext_back(grad, new(grad.ne, init=alike), 1.0, 0.0)


@case("RMS_NORM_BACK", max_nmse=BOUND, long=LONG)
def long_rms_norm_back(new: Leaves, long: str) -> Tensor:
    grad = long_row(new, long)
    return ops.rms_norm_back(grad, new(grad.ne), 1e-5)

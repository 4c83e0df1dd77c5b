"""Test cases of ggml_py/ops/pool.py."""

from __future__ import annotations

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import F16, F32, GGMLType
from llama_py_tools.test_backend_ops.case import Leaves, case
from llama_py_tools.test_backend_ops.differences import IGNORES_STRIDES, differs_from_ggml

Shape = tuple[int, ...]


@case("POOL_1D", pool_type=["avg", "max"], type_input=[F32],
      ne_input=[(10, 3, 2, 1), (11, 1, 3, 2), (128, 2, 1, 3)], k0=[1, 2, 3], s0=[1, 2, 3],
      p0=[0, 1, 2, 3])
@case("POOL_1D", pool_type=["avg", "max"], type_input=[F16], ne_input=[(11, 1, 3, 2)], k0=[3],
      s0=[2], p0=[1], v=[False, True])
@case("POOL_1D", pool_type=["avg"], type_input=[F32], ne_input=[(11, 5, 3, 2)], k0=[3], s0=[2],
      p0=[1], v=[True])
@case("POOL_1D", perf=True, pool_type=["avg"], type_input=[F32], ne_input=[(4096, 512, 1, 1)],
      k0=[2], s0=[2], p0=[0])
def pool_1d(
    new: Leaves, pool_type: str, type_input: GGMLType, ne_input: Shape, k0: int, s0: int, p0: int,
    v: bool = False,
) -> Tensor:
    a = (new.part if v else new)(ne_input, type_input)
    return ops.pool_1d(a, pool_type, k0, s0, p0)


@case("POOL_2D", pool_type=["avg", "max"], type_input=[F32], ne_input=[(10, 10, 3, 1)], k0=[1, 3],
      k1=[1, 3], s0=[1, 2], s1=[1, 2], p0=[0, 1], p1=[0, 1])
@case("POOL_2D", pool_type=["avg", "max"], type_input=[F32, F16], ne_input=[(13, 7, 3, 2)], k0=[4],
      k1=[3], s0=[3], s1=[2], p0=[0.5, 2.0], p1=[1.0], v=[False, True])
@case("POOL_2D", pool_type=["avg", "max"], type_input=[F32], ne_input=[(10, 10, 3, 1)], k0=[1, 3],
      k1=[1, 3], s0=[1], s1=[2], p0=[0], p1=[1], v=[True])
@case("POOL_2D", perf=True, pool_type=["avg"], type_input=[F32], ne_input=[(256, 256, 32, 1)],
      k0=[2], k1=[2], s0=[2], s1=[2], p0=[0], p1=[0])
def pool_2d(
    new: Leaves, pool_type: str, type_input: GGMLType, ne_input: Shape, k0: int, k1: int, s0: int,
    s1: int, p0: float, p1: float, v: bool = False,
) -> Tensor:
    a = (new.part if v else new)(ne_input, type_input)
    return ops.pool_2d(a, pool_type, k0, k1, s0, s1, p0, p1)


differs_from_ggml("POOL_1D", IGNORES_STRIDES, v=[True])
differs_from_ggml("POOL_2D", IGNORES_STRIDES, v=[True])

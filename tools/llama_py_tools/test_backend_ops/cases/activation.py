"""Cases of ggml_py/ops/activation.py."""

from __future__ import annotations

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME, F16, F32, GGMLType
from llama_py_tools.test_backend_ops.case import Leaves, case, uniform
from llama_py_tools.test_backend_ops.differences import IGNORES_STRIDES, differs_from_ggml

Shape = tuple[int, ...]
FLOATS = [F32, F16, BY_NAME["bf16"]]


def _bound(type: GGMLType, **_: object) -> float:
    return {"f32": 1e-7, "f16": 1e-6}.get(type.name, 1e-4)


@case("LEAKY_RELU", max_nmse=_bound, type=FLOATS,
      ne_a=[(10, 5, 4, 3), (7, 1, 5, 3), (257, 3, 1, 1)], negative_slope=[0.1],
      inplace=[False, True])  # fmt: skip
@case("LEAKY_RELU", max_nmse=_bound, type=[F32], ne_a=[(33, 5, 2, 2), (5, 0, 1, 1)],
      negative_slope=[-0.5, 0.0], v=[True])  # fmt: skip
@case("LEAKY_RELU", perf=True, type=[F32], ne_a=[(17408, 512, 1, 1)], negative_slope=[0.1])
def leaky_relu(
    new: Leaves, type: GGMLType, ne_a: Shape, negative_slope: float, inplace: bool = False,
    v: bool = False,
) -> Tensor:  # fmt: skip
    return ops.leaky_relu((new.part if v else new)(ne_a, type), negative_slope, inplace)


@case("XIELU", max_nmse=_bound, type=FLOATS, ne=[(10, 5, 4, 3), (512, 16, 1, 1)])
@case("XIELU", max_nmse=_bound, type=[F32], ne=[(33, 5, 2, 2)], range=[8.0], v=[False, True])
@case("XIELU", perf=True, type=[F32], ne=[(14336, 512, 1, 1)])
def xielu(new: Leaves, type: GGMLType, ne: Shape, range: float = 1.0, v: bool = False) -> Tensor:
    a = (new.part if v else new)(ne, type, uniform(-range, range))
    return ops.xielu(a, alpha_n=4.0, alpha_p=20.0, beta=0.5, eps=1e-7)


@case("SWIGLU_CLAMP", max_nmse=_bound, type=FLOATS, ne_a=[(128, 2, 2, 2), (257, 3, 1, 1)],
      v=[False, True], limit=[2.0, 10.0])  # fmt: skip
@case("SWIGLU_CLAMP", perf=True, type=[F32], ne_a=[(12288, 512, 1, 1)], v=[False], limit=[7.0])
def swiglu_clamp(new: Leaves, type: GGMLType, ne_a: Shape, v: bool, limit: float) -> Tensor:
    init = uniform(-4, 12)
    a, b = ((new.apart if v else new)(ne_a, type, init) for _ in "ab")
    return ops.swiglu_clamp(a, b, limit)


differs_from_ggml("LEAKY_RELU", IGNORES_STRIDES, v=[True])

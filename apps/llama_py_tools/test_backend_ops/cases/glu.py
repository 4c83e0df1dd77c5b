"""Test cases of ggml_py/ops/glu.py."""

from __future__ import annotations

from collections.abc import Callable

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME, F16, F32, GGMLType
from llama_py_tools.test_backend_ops.case import Leaves, case, uniform
from llama_py_tools.test_backend_ops.cases.unary import TAIL
from llama_py_tools.test_backend_ops.differences import differs_from_ggml

Shape = tuple[int, ...]
BF16 = BY_NAME["bf16"]
GATED = {
    "REGLU": (ops.reglu, ops.reglu_split), "GEGLU": (ops.geglu, ops.geglu_split),
    "SWIGLU": (ops.swiglu, ops.swiglu_split), "GEGLU_ERF": (ops.geglu_erf, ops.geglu_erf_split),
    "GEGLU_QUICK": (ops.geglu_quick, ops.geglu_quick_split),
}  # fmt: skip
GATED_SHAPES: list[Shape] = [
    (128, 2, 2, 2),
    (34, 7, 3, 2),
    (2, 1, 1, 1),
    (514, 3, 1, 1),
    (6, 0, 1, 1),
    (5, 7, 11, 3),
]


def _declare_glu(
    name: str, halves: Callable[[Tensor, bool], Tensor], split: Callable[[Tensor, Tensor], Tensor]
) -> None:
    @case(name, type=[F32, F16], ne_a=GATED_SHAPES, v=[False], swapped=[False, True])
    @case(name, max_nmse=1e-4, type=[BF16], ne_a=[(128, 2, 2, 2), (5, 7, 11, 3)], v=[False, True],
          swapped=[False, True])
    @case(name, type=[F32, F16], ne_a=GATED_SHAPES[:2], v=[True], swapped=[False, True])
    def one(new: Leaves, type: GGMLType, ne_a: Shape, v: bool, swapped: bool) -> Tensor:
        return halves(new.half_rows(ne_a, type, TAIL) if v else new(ne_a, type, TAIL), swapped)

    @case(name, type=[F32, F16], ne_a=GATED_SHAPES, v=[False], split=[True])
    @case(name, max_nmse=1e-4, type=[BF16], ne_a=[(128, 2, 2, 2), (5, 7, 11, 3)], v=[False, True],
          split=[True])
    @case(name, type=[F32, F16], ne_a=GATED_SHAPES[:2], v=[True], split=[True])
    @case(name, perf=True, type=[F32], ne_a=[(12288, 1, 1, 1), (12288, 512, 1, 1)], v=[False])
    def two(new: Leaves, type: GGMLType, ne_a: Shape, v: bool, split: bool = True) -> Tensor:
        both = [new.half_rows(ne_a, type, TAIL) if v else new(ne_a, type, TAIL) for _ in "ab"]
        return pair(both[0], both[1])

    pair = split


for _name, (_halves, _split) in GATED.items():
    _declare_glu(_name, _halves, _split)


@case("SWIGLU_OAI", ne_a=[(128, 2, 2, 2), (5, 7, 3, 2), (257, 1, 1, 1)], alpha=[0.5, 1.702],
      limit=[2.0, 7.0])
@case("SWIGLU_OAI", ne_a=[(128, 2, 2, 2), (5, 7, 3, 2)], alpha=[1.702], limit=[7.0], v=[True])
@case("SWIGLU_OAI", perf=True, ne_a=[(2880, 2048, 1, 1)], alpha=[1.702], limit=[7.0])
def swiglu_oai(new: Leaves, ne_a: Shape, alpha: float, limit: float, v: bool = False) -> Tensor:
    a, b = ((new.half_rows if v else new)(ne_a, F32, TAIL) for _ in "ab")
    return ops.swiglu_oai(a, b, alpha, limit)


for _name in ("GEGLU", "GEGLU_QUICK"):
    differs_from_ggml(
        _name, "rounds the value to f16, from a table",
        ne_a=[(2, 1, 1, 1)],
    )


def _clamp_bound(type: GGMLType, **_: object) -> float:
    return {"f32": 1e-7, "f16": 1e-6}.get(type.name, 1e-4)


@case("SWIGLU_CLAMP", max_nmse=_clamp_bound, type=[F32, F16, BF16],
      ne_a=[(128, 2, 2, 2), (257, 3, 1, 1)], v=[False, True], limit=[2.0, 10.0])
@case("SWIGLU_CLAMP", perf=True, type=[F32], ne_a=[(12288, 512, 1, 1)], v=[False], limit=[7.0])
def swiglu_clamp(new: Leaves, type: GGMLType, ne_a: Shape, v: bool, limit: float) -> Tensor:
    init = uniform(-4, 12)
    a, b = ((new.half_rows if v else new)(ne_a, type, init) for _ in "ab")
    return ops.swiglu_clamp(a, b, limit)


SIZES: list[Shape] = [(1, 3, 1, 1), (33, 5, 3, 2), (4099, 2, 1, 1)]


@case("FUSED_MUL_UNARY", kind=["gelu", "relu", "silu"], ne=SIZES, limit=[0.0, 0.75])
@case("FUSED_MUL_UNARY", kind=["gelu", "relu", "silu"], ne=SIZES[1:2], limit=[0.0], inplace=[True])
@case("FUSED_MUL_UNARY", kind=["gelu", "relu", "silu"], ne=SIZES[1:2], limit=[0.0], v=[True])
@case("FUSED_MUL_UNARY", kind=["silu", "sigmoid"], ne=SIZES[1:], limit=[0.0, 0.75], one=[True])
@case("FUSED_MUL_UNARY", perf=True, kind=["silu"], ne=[(12288, 512, 1, 1)], limit=[0.0])
def fused_mul_unary(
    new: Leaves, kind: str, ne: Shape, limit: float, inplace: bool = False, v: bool = False,
    one: bool = False,
) -> Tensor:
    """Build FUSED_MUL_UNARY; one: one gate per row."""
    make, wide = new.part if v else new, uniform(-5, 5)
    a, b = make((1, *ne[1:]) if one else ne, init=wide), make(ne, init=wide)
    return ops.fused_mul_unary(a, b, kind, limit, inplace)

"""Test cases of ggml_py/ops/unary.py."""

from __future__ import annotations

from collections.abc import Callable

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME, F16, F32, GGMLType
from llama_py_tools.test_backend_ops.case import Init, Leaves, case, uniform
from llama_py_tools.test_backend_ops.differences import IGNORES_STRIDES, differs_from_ggml

Shape = tuple[int, ...]

BF16 = BY_NAME["bf16"]
FLOATS = [F32, F16, BF16]
WIDE = uniform(-25, 25)
TAIL = uniform(-3, 8)  # below, 1 + erf(x) and the like cancel in float32
UNARY: dict[str, tuple[Callable[[Tensor], Tensor], Init]] = {
    "ABS": (ops.abs, WIDE), "SGN": (ops.sgn, WIDE), "NEG": (ops.neg, WIDE),
    "STEP": (ops.step, WIDE),
    "TANH": (ops.tanh, uniform(-8, 8)), "ELU": (ops.elu, uniform(-8, 8)), "RELU": (ops.relu, WIDE),
    "SIGMOID": (ops.sigmoid, WIDE), "GELU": (ops.gelu, TAIL),
    "GELU_QUICK": (ops.gelu_quick, TAIL), "GELU_ERF": (ops.gelu_erf, TAIL),
    "SILU": (ops.silu, WIDE), "HARDSWISH": (ops.hardswish, WIDE),
    "HARDSIGMOID": (ops.hardsigmoid, WIDE),
    "EXP": (ops.exp, uniform(-10, 10)), "EXPM1": (ops.expm1, uniform(-10, 10)),
    "SOFTPLUS": (ops.softplus, WIDE), "FLOOR": (ops.floor, WIDE), "CEIL": (ops.ceil, WIDE),
    "ROUND": (ops.round, WIDE), "TRUNC": (ops.trunc, WIDE), "SQR": (ops.sqr, WIDE),
    "SQRT": (ops.sqrt, uniform(0, 100)), "LOG": (ops.log, uniform(0.01, 100)),
    "SIN": (ops.sin, uniform(-6.5, 6.5)), "COS": (ops.cos, uniform(-6.5, 6.5)),
}  # fmt: skip


def _unary_bound(type: GGMLType, **_: object) -> float:
    return 1e-4 if type is BF16 else 1e-7


def _unary(name: str, build: Callable[[Tensor], Tensor], init: Init) -> None:
    @case(name, max_nmse=_unary_bound, type=FLOATS, ne_a=[(128, 2, 2, 2), (5, 7, 11, 13)],
          v=[False, True])
    @case(name, type=[F32, F16], ne_a=[(1100, 65, 1, 1), (10, 2, 2, 2)], v=[False])
    @case(name, type=[F32], ne_a=[(1, 1, 1, 1), (3, 65, 1, 1), (257, 3, 1, 1), (5, 0, 1, 1)],
          v=[False])
    @case(name, perf=True, type=[F32], ne_a=[(4096, 512, 1, 1)], v=[False])
    def unary(new: Leaves, type: GGMLType, ne_a: Shape, v: bool) -> Tensor:
        return build(new.part(ne_a, type, init) if v else new(ne_a, type, init))

    @case(name, type=[F32, F16], ne_a=[(34, 5, 3, 2)], half=[0, 1, 2])
    def build_half(new: Leaves, type: GGMLType, ne_a: Shape, half: int) -> Tensor:
        return build(new.second_half(ne_a, half, type, init))


for _name, (_function, _init) in UNARY.items():
    _unary(_name, _function, _init)


def _extremes(name: str, build: Callable[[Tensor], Tensor]) -> None:
    """Declare a case with arguments that overflow a careless exponential."""
    values = (-150.0, -100.0, -89.0, -20.0, 0.0, 19.9, 20.1, 60.0, 89.0, 100.0, 150.0)

    @case(name, type=[F32], ne_a=[(len(values), 3, 1, 1)], range=["extreme"])
    def extreme(new: Leaves, type: GGMLType, ne_a: Shape, range: str) -> Tensor:
        return build(new(ne_a, type, lambda rng, shape: rng.permutation(values * 3).reshape(shape)))


for _name in ("SILU", "SIGMOID", "SOFTPLUS", "TANH", "EXP", "GELU", "GELU_QUICK"):
    _extremes(_name, UNARY[_name][0])


for _name in ("GELU", "GELU_QUICK"):
    differs_from_ggml(
        _name, "rounds the value to f16, from a table",
        ne_a=[(1, 1, 1, 1)],
    )


differs_from_ggml("SOFTPLUS", "computes log(1 + exp(x)): 0 for x < -17", ne_a=[(1, 1, 1, 1)])


def _activation_bound(type: GGMLType, **_: object) -> float:
    return {"f32": 1e-7, "f16": 1e-6}.get(type.name, 1e-4)


@case("LEAKY_RELU", max_nmse=_activation_bound, type=FLOATS,
      ne_a=[(10, 5, 4, 3), (7, 1, 5, 3), (257, 3, 1, 1)], negative_slope=[0.1],
      inplace=[False, True])
@case("LEAKY_RELU", max_nmse=_activation_bound, type=[F32], ne_a=[(33, 5, 2, 2), (5, 0, 1, 1)],
      negative_slope=[-0.5, 0.0], v=[True])
@case("LEAKY_RELU", perf=True, type=[F32], ne_a=[(17408, 512, 1, 1)], negative_slope=[0.1])
def leaky_relu(
    new: Leaves, type: GGMLType, ne_a: Shape, negative_slope: float, inplace: bool = False,
    v: bool = False,
) -> Tensor:
    return ops.leaky_relu((new.part if v else new)(ne_a, type), negative_slope, inplace)


@case("XIELU", max_nmse=_activation_bound, type=FLOATS, ne=[(10, 5, 4, 3), (512, 16, 1, 1)])
@case("XIELU", max_nmse=_activation_bound, type=[F32], ne=[(33, 5, 2, 2)], range=[8.0],
      v=[False, True])
@case("XIELU", perf=True, type=[F32], ne=[(14336, 512, 1, 1)])
def xielu(new: Leaves, type: GGMLType, ne: Shape, range: float = 1.0, v: bool = False) -> Tensor:
    a = (new.part if v else new)(ne, type, uniform(-range, range))
    return ops.xielu(a, alpha_n=4.0, alpha_p=20.0, beta=0.5, eps=1e-7)


differs_from_ggml("LEAKY_RELU", IGNORES_STRIDES, v=[True])

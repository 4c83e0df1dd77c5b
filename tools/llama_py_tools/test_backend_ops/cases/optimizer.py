"""Cases of ggml_py/ops/optimizer.py."""

from __future__ import annotations

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import F32, GGMLType
from llama_py_tools.test_backend_ops.case import Leaves, case, uniform

Shape = tuple[int, ...]
SIZES: list[Shape] = [(10, 5, 4, 3), (30000, 1, 1, 1), (33, 17, 1, 1)]


@case("CROSS_ENTROPY_LOSS", type=[F32], ne=SIZES, low=[-10.0, -100.0])
@case("CROSS_ENTROPY_LOSS", perf=True, type=[F32], ne=[(32000, 64, 1, 1)], low=[-10.0])
def cross_entropy_loss(new: Leaves, type: GGMLType, ne: Shape, low: float) -> Tensor:
    logits, labels = new(ne, type, uniform(low, 0)), ops.soft_max(new(ne, type))
    return ops.cross_entropy_loss(logits, labels)


@case("CROSS_ENTROPY_LOSS_BACK", type=[F32], ne=SIZES, low=[-10.0, -100.0])
@case("CROSS_ENTROPY_LOSS_BACK", perf=True, type=[F32], ne=[(32000, 64, 1, 1)], low=[-10.0])
def cross_entropy_loss_back(new: Leaves, type: GGMLType, ne: Shape, low: float) -> Tensor:
    logits, labels = new(ne, type, uniform(low, 0)), ops.soft_max(new(ne, type))
    return ops.cross_entropy_loss_back(new((1,), init=uniform(0.5, 2)), logits, labels)


STEPS: list[Shape] = [(10, 5, 4, 3), (1, 1, 1, 1), (4099, 3, 1, 1)]


@case("OPT_STEP_ADAMW", type=[F32], ne=STEPS)
@case("OPT_STEP_ADAMW", perf=True, type=[F32], ne=[(4096, 512, 1, 1)])
def opt_step_adamw(new: Leaves, type: GGMLType, ne: Shape) -> Tensor:
    positive = uniform(0, 1)
    a, grad, m = new(ne, type), new(ne, type), new(ne, type)
    params = new((7,), init=uniform(0.1, 1))
    return ops.opt_step_adamw(a, grad, m, new(ne, type, positive), params)


@case("OPT_STEP_SGD", type=[F32], ne=STEPS)
@case("OPT_STEP_SGD", perf=True, type=[F32], ne=[(4096, 512, 1, 1)])
def opt_step_sgd(new: Leaves, type: GGMLType, ne: Shape) -> Tensor:
    return ops.opt_step_sgd(new(ne, type), new(ne, type), new((2,), init=uniform(0.1, 1)))

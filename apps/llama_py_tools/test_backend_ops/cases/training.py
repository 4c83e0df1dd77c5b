"""Test cases of ggml_py/ops/training.py."""

from __future__ import annotations

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import F32, I32, GGMLType
from llama_py_tools.test_backend_ops.case import Leaves, case, integers, uniform
from llama_py_tools.test_backend_ops.cases._long import BOUND, LONG, long_row
from llama_py_tools.test_backend_ops.differences import differs_from_ggml

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


def _distinct(rng, shape):  # type: ignore[no-untyped-def]
    """Return rows of 0, 1, .. in random order, so that an ARGMAX has no ties."""
    return rng.permuted(rng.random(shape), axis=-1).argsort(-1)


@case("COUNT_EQUAL", max_nmse=0, ne=[(4, 500, 1, 1), (4, 5000, 1, 1)])
def count_equal(new: Leaves, ne: Shape) -> Tensor:
    a, b = (ops.argmax(new(ne, init=_distinct)) for _ in "ab")
    return ops.count_equal(a, b)


@case("COUNT_EQUAL", max_nmse=0, ne=[(33, 5, 4, 3), (1, 1, 1, 1), (9001, 3, 1, 1)],
      v=["", "part", "permuted"])
@case("COUNT_EQUAL", perf=True, ne=[(4096, 512, 1, 1)], v=[""])
def count_equal_strided(new: Leaves, ne: Shape, v: str) -> Tensor:
    few = integers(0, 3)
    if v == "permuted":
        return ops.count_equal(new(ne, I32, few), new.permuted_view(ne, (1, 0, 2, 3), I32, few))
    return ops.count_equal((new.part if v else new)(ne, I32, few), new(ne, I32, few))


differs_from_ggml("COUNT_EQUAL", "computes wrong row numbers in tensors with a dimension 3",
                  ne=[(33, 5, 4, 3)])
differs_from_ggml("COUNT_EQUAL", "assumes a contiguous source of ARGMAX", gaps=[0, 1])

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


@case("CROSS_ENTROPY_LOSS", max_nmse=BOUND, long=LONG)
def long_loss(new: Leaves, long: str) -> Tensor:
    labels = long_row(new, long)
    return ops.cross_entropy_loss(new(labels.ne), labels)


@case("CROSS_ENTROPY_LOSS_BACK", max_nmse=BOUND, long=LONG[:1])
def long_loss_back(new: Leaves, long: str) -> Tensor:
    labels = long_row(new, long)
    return ops.cross_entropy_loss_back(new((1,)), new(labels.ne), labels)


@case("COUNT_EQUAL", max_nmse=0, long=[1 << 22])
def long_count(new: Leaves, long: int) -> Tensor:
    return ops.count_equal(*(new((long,), I32, integers(0, 2)) for _ in "ab"))

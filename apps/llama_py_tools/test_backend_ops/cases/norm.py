"""Test cases of ggml_py/ops/norm.py."""

from __future__ import annotations

from collections.abc import Callable

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import F32, GGMLType
from llama_py_tools.test_backend_ops.case import Leaves, case, uniform
from llama_py_tools.test_backend_ops.cases._long import BOUND, LONG, long_row

Shape = tuple[int, ...]
SIZES: list[Shape] = [(n, 5, 4, 3) for n in (1, 3, 17, 33, 63, 64, 65, 100, 257)]


def _norm(name: str, build: Callable[[Tensor, float], Tensor]) -> None:
    @case(name, type=[F32], ne=SIZES, v=[False, True], eps=[1e-6])
    @case(name, type=[F32], ne=[(64, 5, 4, 3), (1025, 2, 1, 1)], v=[False, True], eps=[0.0, 1e-1])
    @case(name, type=[F32], ne=[(132, 5, 4, 3), (260, 2, 2, 1)], v=[False, True], eps=[1e-4, 10.0])
    @case(name, type=[F32], ne=[(1024, 2, 2, 1), (8192, 2, 1, 1), (16896, 1, 1, 1)], v=[False],
          eps=[1e-6])
    @case(name, type=[F32], ne=[(64, 0, 1, 1)], v=[False], eps=[1e-6])
    @case(name, perf=True, type=[F32], ne=[(4096, 1, 1, 1), (4096, 512, 1, 1)], v=[False],
          eps=[1e-6])
    def norm(new: Leaves, type: GGMLType, ne: Shape, v: bool, eps: float) -> Tensor:
        # Values not centered on zero, so that a missing mean is visible.
        init = uniform(-1, 2)
        return build(new.part(ne, type, init) if v else new(ne, type, init), eps)

    @case(name, type=[F32], ne=[(33, 5, 4, 3)], perm=[(0, 2, 1, 3), (0, 3, 1, 2)], eps=[1e-6])
    def build_permuted(new: Leaves, type: GGMLType, ne: Shape, perm: Shape, eps: float) -> Tensor:
        return build(new.permuted_view(ne, perm, type), eps)

    @case(name, type=[F32], ne=[(64, 5, 4, 3), (130, 3, 1, 1)], half=[0, 1, 2], eps=[1e-6])
    def build_half(new: Leaves, type: GGMLType, ne: Shape, half: int, eps: float) -> Tensor:
        return build(new.second_half(ne, half, type, uniform(-1, 2)), eps)

    @case(name, type=[F32], ne=[(65, 3, 1, 1)], scale=[1e-6, 1e6], eps=[1e-6])
    def build_scaled(new: Leaves, type: GGMLType, ne: Shape, scale: float, eps: float) -> Tensor:
        return build(new(ne, type, uniform(-scale, scale)), eps)


@case("RMS_NORM", type=[F32], ne=[(64, 5, 4, 3), (1025, 2, 1, 1)], eps=[1e-6], inplace=[True])
def rms_norm_inplace(new: Leaves, type: GGMLType, ne: Shape, eps: float, inplace: bool) -> Tensor:
    return ops.rms_norm(new(ne, type), eps, inplace)


@case("NORM", type=[F32], ne=[(64, 5, 4, 3), (33, 7, 1, 1)], eps=[0.0, 1e-6], swapped=[True])
def norm_swapped(new: Leaves, type: GGMLType, ne: Shape, eps: float, swapped: bool) -> Tensor:
    """Build a norm over rows with gaps between elements."""
    return ops.norm(new.permuted_view(ne, (1, 0, 2, 3), type, uniform(-1, 2)), eps)


@case("L2_NORM", type=[F32], ne=[(64, 5, 4, 3), (33, 7, 1, 1)], eps=[0.0, 1e-6], swapped=[True])
def l2_norm_swapped(new: Leaves, type: GGMLType, ne: Shape, eps: float, swapped: bool) -> Tensor:
    return ops.l2_norm(new.permuted_view(ne, (1, 0, 2, 3), type), eps)


for _name, _build in {"RMS_NORM": ops.rms_norm, "NORM": ops.norm, "L2_NORM": ops.l2_norm}.items():
    _norm(_name, _build)


@case("GROUP_NORM", type=[F32], ne=[(64, 64, 320, 1)], num_groups=[32], eps=[1e-6])
@case("GROUP_NORM", type=[F32], ne=[(9, 9, 1280, 1)], num_groups=[32], eps=[1e-6])
@case("GROUP_NORM", type=[F32], ne=[(9, 9, 12, 2), (3, 1, 7, 1)], num_groups=[1, 3, 4], eps=[1e-6])
@case("GROUP_NORM", type=[F32], ne=[(17, 5, 6, 3)], num_groups=[1, 2, 6], eps=[1e-6], v=[True])
@case("GROUP_NORM", perf=True, type=[F32], ne=[(64, 64, 320, 1)], num_groups=[32], eps=[1e-6])
def group_norm(
    new: Leaves, type: GGMLType, ne: Shape, num_groups: int, eps: float, v: bool = False
) -> Tensor:
    return ops.group_norm((new.part if v else new)(ne, type, uniform(-1, 2)), num_groups, eps)


def _declare_long(name: str) -> None:
    @case(name, max_nmse=BOUND, long=LONG)
    def build_long(new: Leaves, long: str) -> Tensor:
        norm: Callable[[Tensor, float], Tensor] = getattr(ops, name.lower())
        return norm(long_row(new, long), 1e-5)


for _name in ("NORM", "RMS_NORM", "L2_NORM"):
    _declare_long(_name)


@case("GROUP_NORM", max_nmse=BOUND, long=LONG)
def long_group_norm(new: Leaves, long: str) -> Tensor:
    x = long_row(new, long)
    return ops.group_norm(ops.reshape(x, 2, x.ne[0] // 2), 1, 1e-5)

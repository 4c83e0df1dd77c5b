"""Test cases of ggml_py/ops/reduce.py."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import F32, GGMLType
from llama_py_tools.test_backend_ops.case import Array, Leaves, case
from llama_py_tools.test_backend_ops.cases._long import BOUND, LONG, long_row
from llama_py_tools.test_backend_ops.differences import IGNORES_STRIDES, differs_from_ggml

Shape = tuple[int, ...]
SIZES: list[Shape] = [(n, 5, 3, 2) for n in (1, 3, 17, 33, 63, 65, 100, 257)]


def distinct(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return rows of shuffled, distinct values: without ties the result is unique."""
    row = np.arange(shape[-1]) - shape[-1] // 2
    return rng.permuted(np.broadcast_to(row, shape).copy(), axis=-1)


@case("SUM_ROWS", type=[F32], ne=SIZES, v=[False])
@case("SUM_ROWS", type=[F32], ne=[(33, 5, 3, 2), (256, 1, 1, 1)], v=[True])
@case("SUM_ROWS", type=[F32], ne=[(0, 3, 1, 1), (5, 0, 1, 1)], v=[False])
@case("SUM_ROWS", type=[F32], ne=[(16, 5, 6, 3), (8, 1024, 1, 1), (32769, 1, 1, 1)], v=[False])
@case("SUM_ROWS", perf=True, type=[F32], ne=[(4096, 512, 1, 1)], v=[False])
def sum_rows(new: Leaves, type: GGMLType, ne: Shape, v: bool) -> Tensor:
    return ops.sum_rows(new.part(ne, type) if v else new(ne, type))


@case("SUM_ROWS", type=[F32], ne=[(11, 5, 6, 3)], perm=[(1, 0, 2, 3), (3, 2, 1, 0)])
def sum_rows_permuted(new: Leaves, type: GGMLType, ne: Shape, perm: Shape) -> Tensor:
    return ops.sum_rows(new.permuted_view(ne, perm, type))


def _declare_strided(name: str, build: Callable[[Tensor], Tensor]) -> None:
    @case(name, type=[F32], ne=[(11, 5, 6, 3), (16, 5, 6, 3)],
          perm=[(0, 2, 1, 3), (0, 2, 3, 1), (0, 3, 2, 1), (0, 1, 3, 2)])
    def build_permuted(new: Leaves, type: GGMLType, ne: Shape, perm: Shape) -> Tensor:
        return build(new.permuted_view(ne, perm, type))

    @case(name, type=[F32], ne=[(11, 5, 6, 3), (16, 5, 6, 3)], half=[0, 1, 2],
          perm=[(0, 1, 2, 3), (0, 2, 3, 1)])
    def build_half(new: Leaves, type: GGMLType, ne: Shape, half: int, perm: Shape) -> Tensor:
        """Build the op on half of a tensor with permuted dimensions."""
        stored = tuple(ne[i] for i in perm)
        return build(ops.permute(new.second_half(stored, half, type), *perm))


_declare_strided("SUM_ROWS", ops.sum_rows)
_declare_strided("MEAN", ops.mean)
_declare_strided("SUM", ops.sum)


@case("SUM", type=[F32], ne=[(1, 1, 1, 1), (10, 5, 4, 3), (33, 1, 1, 1), (33, 1024, 1, 1)])
@case("SUM", type=[F32], ne=[(16384, 1, 1, 1), (262144, 1, 1, 1)])
@case("SUM", perf=True, type=[F32], ne=[(4096, 512, 1, 1)])
def sum(new: Leaves, type: GGMLType, ne: Shape) -> Tensor:
    return ops.sum(new(ne, type))


@case("SUM", type=[F32], ne=[(33, 257, 1, 1)], perm=[(1, 0, 2, 3)])
def sum_transposed(new: Leaves, type: GGMLType, ne: Shape, perm: Shape) -> Tensor:
    return ops.sum(new.permuted_view(ne, perm, type))


@case("MEAN", type=[F32], ne=SIZES)
@case("MEAN", type=[F32], ne=[(32, 256, 1, 1), (33, 1, 1, 1), (32768, 1, 1, 1), (32769, 1, 1, 1)])
@case("MEAN", perf=True, type=[F32], ne=[(4096, 512, 1, 1)])
def mean(new: Leaves, type: GGMLType, ne: Shape) -> Tensor:
    return ops.mean(new(ne, type))


LONG_SUMS: list[Shape] = [(512, 5, 4, 3), (1023, 2, 1, 1), (20481, 4, 1, 1), (242004, 1, 1, 1)]


@case("CUMSUM", type=[F32], ne=[*SIZES, (2048, 2, 1, 1), (5, 0, 1, 1)], v=[False])
@case("CUMSUM", type=[F32], ne=[(128, 128, 4, 4), *LONG_SUMS], v=[False])
@case("CUMSUM", type=[F32], ne=[(33, 5, 3, 2)], v=[True])
@case("CUMSUM", perf=True, type=[F32], ne=[(4096, 512, 1, 1)], v=[False])
def cumsum(new: Leaves, type: GGMLType, ne: Shape, v: bool) -> Tensor:
    return ops.cumsum(new.part(ne, type) if v else new(ne, type))


@case("CUMSUM", type=[F32], ne=[(10, 5, 4, 3)], perm=[(1, 0, 2, 3)])
def cumsum_permuted(new: Leaves, type: GGMLType, ne: Shape, perm: Shape) -> Tensor:
    return ops.cumsum(new.permuted_view(ne, perm, type))


@case("CUMSUM", ne=[(33, 5, 3, 2), (1, 7, 1, 1), (257, 100, 2, 1)], axis=[1, 2, 3])
@case("CUMSUM", ne=[(33, 5, 3, 2)], axis=[1, 2, 3], v=[True])
@case("CUMSUM", ne=[(5, 0, 1, 1)], axis=[1])
@case("CUMSUM", perf=True, ne=[(4096, 512, 1, 1)], axis=[1])
def cumsum_axis(new: Leaves, ne: Shape, axis: int, v: bool = False) -> Tensor:
    return ops.cumsum((new.part if v else new)(ne), axis)


def _declare_long(name: str, build: Callable[[Tensor], Tensor]) -> None:
    @case(name, max_nmse=BOUND, long=LONG)
    def build_long(new: Leaves, long: str) -> Tensor:
        return build(long_row(new, long))


for _name in ("SUM", "SUM_ROWS", "MEAN", "CUMSUM"):
    _declare_long(_name, getattr(ops, _name.lower()))


@case("CUMSUM", max_nmse=BOUND, axis=[1], long=LONG[1:])
def long_cumsum_axis(new: Leaves, axis: int, long: str) -> Tensor:
    x = long_row(new, long)
    return ops.cumsum(ops.reshape(x, 1, x.ne[0]), axis)


@case("ARGMAX", max_nmse=0, type=[F32],
      ne=[(1, 1, 1, 1), (3, 33, 1, 1), (257, 5, 1, 1), (2000, 10, 1, 1)])
@case("ARGMAX", max_nmse=0, type=[F32], ne=[(32, 1, 1, 1), (32, 513, 1, 1), (100, 10, 1, 1),
      (1024, 12, 1, 1), (5438, 3, 1, 1)])
@case("ARGMAX", perf=True, type=[F32], ne=[(32000, 64, 1, 1)])
def argmax(new: Leaves, type: GGMLType, ne: Shape) -> Tensor:
    return ops.argmax(new(ne, type, distinct))


differs_from_ggml("CUMSUM", "adds along dimension 0 only", axis=[1, 2, 3])
differs_from_ggml("SUM", IGNORES_STRIDES, perm=[(1, 0, 2, 3)])
for _name in ("ARGMAX", "MEAN", "SUM"):
    differs_from_ggml(_name, IGNORES_STRIDES, gaps=[0])

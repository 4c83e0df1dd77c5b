"""Test cases of ggml_py/ops/sort.py."""

from __future__ import annotations

import numpy as np

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import F32, GGMLType
from llama_py_tools.test_backend_ops.case import Array, Leaves, case, integers
from llama_py_tools.test_backend_ops.cases.reduce import distinct
from llama_py_tools.test_backend_ops.differences import IGNORES_STRIDES, differs_from_ggml

Shape = tuple[int, ...]
SORTED: list[Shape] = [(n, 3, 2, 1) for n in (1, 3, 16, 17, 33, 65, 100, 257, 1024)]
LONG: list[Shape] = [(4095, 2, 1, 3), (2048, 65, 1, 1), (16384, 1, 1, 1), (32767, 1, 1, 1)]
HUGE: list[Shape] = [(131072, 1, 1, 1), (202048, 2, 1, 1), (262155, 1, 2, 1)]
MANY: list[Shape] = [(2, 8, 8192, 1), (16, 10, 10, 10), (60, 10, 10, 10)]


@case("ARGSORT", max_nmse=0, type=[F32], ne=[*SORTED, (5, 0, 1, 1)], order=["asc", "desc"])
@case("ARGSORT", max_nmse=0, type=[F32], ne=[(4, 1, 1, 1), (128, 1, 1, 1), *LONG, *HUGE, *MANY],
      order=["asc", "desc"])
@case("ARGSORT", perf=True, type=[F32], ne=[(128, 512, 1, 1)], order=["desc"])
def argsort(new: Leaves, type: GGMLType, ne: Shape, order: str) -> Tensor:
    return ops.argsort(new(ne, type, distinct), order)


def in_any_order(ids: Array) -> Array:
    return np.sort(ids, axis=-1)


@case("TOP_K", max_nmse=0, compare=in_any_order, type=[F32], ne=SORTED, k=[1])
@case("TOP_K", max_nmse=0, compare=in_any_order, type=[F32], ne=SORTED[3:], k=[3, 15])
@case("TOP_K", max_nmse=0, compare=in_any_order, type=[F32], ne=[(40, 2, 1, 1)], k=[39, 40])
@case("TOP_K", max_nmse=0, compare=in_any_order, type=[F32], ne=[*LONG, *HUGE], k=[1, 100, 2047])
@case("TOP_K", max_nmse=0, compare=in_any_order, type=[F32], ne=MANY, k=[1, 2])
@case("TOP_K", max_nmse=0, compare=in_any_order, type=[F32], ne=[(1024, 1, 1, 1), (1035, 1, 2, 1)],
      k=[500, 1023, 1024])
@case("TOP_K", perf=True, type=[F32], ne=[(128, 512, 1, 1)], k=[8])
def top_k(new: Leaves, type: GGMLType, ne: Shape, k: int) -> Tensor:
    return ops.top_k(new(ne, type, distinct), k)


def _sorted_column(rows: Array) -> Array:
    return np.sort(rows, axis=-2)


@case("TOP_K", fused=True, max_nmse=0, compare=_sorted_column, type=[F32],
      ne=[(1, 2, 1, 3), (4, 2, 1, 3), (139, 1, 2, 1), (8192, 2, 1, 1)], k=[1, 3, 100, 2051],
      ties=[True])
def top_k_ties(new: Leaves, type: GGMLType, ne: Shape, k: int, ties: bool) -> Tensor:
    """Build TOP_K with ties: the chosen indices are undefined, their values are not."""
    a = new(ne, type, integers(0, max(2, ne[0] // 64)))
    n_rows, k = ne[1] * ne[2] * ne[3], min(k, ne[0])
    ids = ops.reshape(ops.top_k(a, k), k, n_rows)
    return ops.get_rows(ops.reshape(a, 1, ne[0], n_rows), ids)


for _name in ("ARGSORT", "TOP_K"):
    differs_from_ggml(_name, IGNORES_STRIDES, gaps=[0])

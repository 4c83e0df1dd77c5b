"""Test cases of ggml_py/ops/collective.py."""

from __future__ import annotations

from math import prod

from ggml_py import ops
from ggml_py.ops.collective import TYPES
from ggml_py.tensor import Tensor
from ggml_py.types import GGMLType
from llama_py_tools.test_backend_ops.case import Leaves, case
from llama_py_tools.test_backend_ops.cases._quantized import quantization_bound

Shape = tuple[int, ...]


def _reduce_bound(type: GGMLType, ne: Shape, **_: object) -> float:
    return max(quantization_bound(type, prod(ne)), 1e-6 if type.type_size == 2 else 0)


@case("REDUCE", max_nmse=_reduce_bound, type=TYPES, ne=[(64, 5, 1, 1), (4096, 3, 1, 1)],
      parts=["11", "111", "1111111111"], receivers=[()])
@case("REDUCE", max_nmse=_reduce_bound, type=TYPES[:3], ne=[(33, 5, 3, 2), (1, 1, 1, 1)],
      parts=["11", "0101", "1100"], receivers=[()])
@case("REDUCE", max_nmse=_reduce_bound, type=TYPES, ne=[(64, 3, 1, 1)], parts=["1111", "1011"],
      receivers=[(0,), (2, 3)])
@case("REDUCE", perf=True, type=TYPES, ne=[(4096, 512, 1, 1)], parts=["11"], receivers=[()])
def all_reduce(
    new: Leaves, type: GGMLType, ne: Shape, parts: str, receivers: tuple[int, ...]
) -> Tensor:
    """Build REDUCE; parts: a 1 for each device that has one."""
    return ops.all_reduce([new(ne, type) if c == "1" else None for c in parts], receivers)

"""Test cases of ggml_py/ops/concat.py."""

from __future__ import annotations

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME, F16, F32, I32, I64, GGMLType
from llama_py_tools.test_backend_ops.case import Leaves, case, integers, uniform
from llama_py_tools.test_backend_ops.cases._quantized import STORED

Shape = tuple[int, ...]
I16 = BY_NAME["i16"]
WHOLE = uniform(-150, 150)
BF16 = BY_NAME["bf16"]


@case("CONCAT", max_nmse=0, type=[F32, F16, I32], ne_a=[(11, 12, 13, 2)], ne_b_d=[7],
      dim=[0, 1, 2, 3], v=[0, 1, 2, 3])
@case("CONCAT", max_nmse=0, type=[BF16, BY_NAME["i8"], I16, I64], ne_a=[(11, 12, 5, 2)],
      ne_b_d=[7], dim=[0, 1, 2, 3], v=[0, 3])
@case("CONCAT", max_nmse=0, type=STORED, ne_a=[(128, 3, 5, 2)], ne_b_d=[64], dim=[0],
      v=[0, 1, 2, 3])
@case("CONCAT", max_nmse=0, type=STORED, ne_a=[(96, 3, 5, 2)], ne_b_d=[7], dim=[1, 2, 3],
      v=[0, 1, 2, 3])
@case("CONCAT", max_nmse=0, type=[F32], ne_a=[(3, 257, 2, 1), (1, 1, 1, 1)], ne_b_d=[1, 33],
      dim=[0, 1], v=[0])
@case("CONCAT", max_nmse=0, type=[F32], ne_a=[(3, 0, 2, 1)], ne_b_d=[2], dim=[1], v=[0])
@case("CONCAT", perf=True, type=[F32], ne_a=[(4096, 512, 1, 1)], ne_b_d=[512], dim=[0, 1], v=[0])
def concat(new: Leaves, type: GGMLType, ne_a: Shape, ne_b_d: int, dim: int, v: int) -> Tensor:
    """Build CONCAT; v: bit 0: a is a window, bit 1: b is a window."""
    ne_b = tuple(ne_b_d if i == dim else n for i, n in enumerate(ne_a))
    init = integers(-100, 100) if type.name.startswith("i") else None
    a = (new.part if v & 1 else new)(ne_a, type, init)
    b = (new.part if v & 2 else new)(ne_b, type, init)
    return ops.concat(a, b, dim)


@case("CONCAT_INPLACE", max_nmse=0, type=[F32, F16, I32], ne_a=[(11, 12, 13, 2)], ne_b_d=[7],
      dim=[0, 1, 2, 3], v=[False, True])
@case("CONCAT_INPLACE", perf=True, type=[F32], ne_a=[(4096, 512, 1, 1)], ne_b_d=[512], dim=[1],
      v=[False])
def concat_inplace(
    new: Leaves, type: GGMLType, ne_a: Shape, ne_b_d: int, dim: int, v: bool
) -> Tensor:
    """Build CONCAT in place; v: the result is a window."""
    init = integers(-100, 100) if type is I32 else None
    ne_b = tuple(ne_b_d if i == dim else n for i, n in enumerate(ne_a))
    ne = tuple(n + (ne_b_d if i == dim else 0) for i, n in enumerate(ne_a))
    result = (new.part if v else new)(ne, type, init)
    return ops.concat_inplace(new(ne_a, type, init), new(ne_b, type, init), result, dim)


@case("CONCAT_INPLACE", max_nmse=0, ne=[(11, 12, 3, 2)], n=[1, 5], dim=[1, 3], there=[True])
def concat_there(new: Leaves, ne: Shape, n: int, dim: int, there: bool) -> Tensor:
    """Build CONCAT whose `a` is already the beginning of the result."""
    result = new(ne)
    ne_a = tuple(m - n * (i == dim) if m > n else 1 for i, m in enumerate(ne))
    ne_a = tuple(a if i == dim else m for i, (a, m) in enumerate(zip(ne_a, ne, strict=True)))
    ne_b = tuple(m - a if i == dim else m for i, (a, m) in enumerate(zip(ne_a, ne, strict=True)))
    a = ops.view_4d(result, *ne_a, *result.nb[1:], 0)  # type: ignore[call-arg]
    return ops.concat_inplace(a, new(ne_b), result, dim)


@case("CONCAT", max_nmse=0, ne_a=[(3, 65, 2, 1)], n=[1, 5], transposed=[True])
def concat_transposed(new: Leaves, ne_a: Shape, n: int, transposed: bool) -> Tensor:
    """Build CONCAT of a recurrent layer's convolution state and its transposed input."""
    b = ops.transpose(new((ne_a[1], n, ne_a[2])))
    return ops.concat(new(ne_a), b, 0)


REPEATS: list[Shape] = [
    (1, 1, 1, 1),
    (2, 1, 1, 1),
    (1, 2, 1, 1),
    (1, 1, 2, 1),
    (1, 1, 1, 2),
    (3, 2, 2, 2),
]


@case("REPEAT", max_nmse=0, type=[F32], ne=[(10, 5, 4, 3), (1, 1, 33, 1)], nr=REPEATS)
@case("REPEAT", max_nmse=0, type=[F16, I32], ne=[(10, 5, 4, 3)], nr=[(1, 1, 1, 2), (3, 2, 2, 2)])
@case("REPEAT", max_nmse=0, type=[F32, F16, BF16, I32, I16], ne=[(10, 5, 4, 1), (10, 5, 4, 3)],
      nr=REPEATS[1:5])
@case("REPEAT", perf=True, type=[F32], ne=[(128, 1, 8, 512)], nr=[(1, 4, 1, 1)])
def repeat(new: Leaves, type: GGMLType, ne: Shape, nr: Shape) -> Tensor:
    init = integers(-100, 100) if type in (I32, I16) else None
    return ops.repeat_4d(new(ne, type, init), *(n * r for n, r in zip(ne, nr, strict=True)))


@case("REPEAT", max_nmse=0, ne=[(1, 5, 4, 3)], nr=[(7, 1, 1, 1), (7, 2, 1, 1)],
      perm=[(0, 2, 1, 3), (1, 0, 2, 3)])
def repeat_permuted(new: Leaves, ne: Shape, nr: Shape, perm: Shape) -> Tensor:
    return ops.repeat_4d(new.permuted_view(ne, perm), *(n * r for n, r in zip(ne, nr, strict=True)))

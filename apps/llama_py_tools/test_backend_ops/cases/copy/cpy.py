"""Cases of CPY (ggml_py/ops/copy.py): between types, layouts and shapes."""

from __future__ import annotations

from math import prod

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME, F16, F32, I32, I64, GGMLType
from llama_py_tools.test_backend_ops.case import Leaves, case, uniform
from llama_py_tools.test_backend_ops.cases._quantized import (
    PARTNERS,
    READABLE,
    STORED,
    WRITABLE,
    quantization_bound,
)
from llama_py_tools.test_backend_ops.cases.copy.cont import BF16, PERMUTATIONS, WHOLE
from llama_py_tools.test_backend_ops.differences import crashes_ggml, differs_from_ggml

Shape = tuple[int, ...]
AS_IT_IS = PERMUTATIONS[0]


def _cpy_bound(type_src: GGMLType, type_dst: GGMLType, ne: Shape, **_: object) -> float:
    if type_src is type_dst:
        return 0.0
    return max(quantization_bound(type_dst, prod(ne)), 1e-6 if not type_dst.is_quantized else 0)


@case("CPY", max_nmse=_cpy_bound, type_src=[F32, F16, BF16], type_dst=[F32, F16, BF16],
      ne=[(33, 4, 3, 2)], permute_src=PERMUTATIONS[:3])
@case("CPY", max_nmse=_cpy_bound, type_src=[F32], type_dst=STORED,
      ne=[(256, 4, 3, 2), (32, 1, 1, 1)], permute_src=[(0, 1, 2, 3), (0, 2, 1, 3)])
@case("CPY", max_nmse=_cpy_bound, type_src=STORED, type_dst=[F32], ne=[(256, 4, 3, 2)],
      permute_src=[AS_IT_IS])
@case("CPY", max_nmse=_cpy_bound, type_src=READABLE, type_dst=[F32], ne=[(256, 4, 3, 2)],
      permute_src=[AS_IT_IS])
@case("CPY", max_nmse=_cpy_bound, type_src=[F32], type_dst=STORED, ne=[(64, 5, 3, 2)],
      permute_src=[(1, 0, 2, 3), (3, 1, 0, 2)])
@case("CPY", max_nmse=0, type_src=[I32, I64], type_dst=[I32, I64], ne=[(33, 5, 1, 1)],
      permute_src=PERMUTATIONS[:2])
@case("CPY", max_nmse=0, type_src=[F32], type_dst=[I32], ne=[(33, 5, 1, 1)],
      permute_src=[AS_IT_IS])
@case("CPY", max_nmse=0, type_src=[I32], type_dst=[F32], ne=[(33, 5, 1, 1)],
      permute_src=[AS_IT_IS])
@case("CPY", perf=True, type_src=[F32], type_dst=[F32, F16, STORED[4]], ne=[(4096, 512, 1, 1)],
      permute_src=[AS_IT_IS])
def cpy(
    new: Leaves, type_src: GGMLType, type_dst: GGMLType, ne: Shape, permute_src: Shape
) -> Tensor:
    return ops.cpy(new.permuted_view(ne, permute_src, type_src, WHOLE), new(ne, type_dst))


@case("CPY", max_nmse=0, type=STORED, ne=[(64, 4, 3, 1)])
def cpy_blocks(new: Leaves, type: GGMLType, ne: Shape) -> Tensor:
    """Build CPY of blocks, which are not rounded again."""
    return ops.cpy(new(ne, type), new(ne, type))


@case("CPY", max_nmse=0, type=STORED, ne=[(64, 4, 3, 1)], ne_dst=[(32, 24), (96, 8)],
      max_dst=[True])
def cpy_block_shape(new: Leaves, type: GGMLType, ne: Shape, ne_dst: Shape, max_dst: bool) -> Tensor:
    """Build CPY of blocks to rows of f32 of another length."""
    return ops.cpy(new(ne, type), new(ne_dst))


@case("CPY", max_nmse=0, type_src=[F32], ne=[(3, 8, 2, 1)], to=[(48,), (6, 8), (2, 4, 6)],
      view=[False, True])
def cpy_shape(new: Leaves, type_src: GGMLType, ne: Shape, to: Shape, view: bool) -> Tensor:
    """Build CPY between shapes, which keeps the order of elements; view: the destination is a
    window."""
    dst = new.part(to) if view else new(to)
    return ops.cpy(new.permuted_view(ne, (1, 0, 2, 3), type_src), dst)


@case("CPY", type_src=[F32], type_dst=[F16, BF16, I32], ne=[(33, 5, 1, 1)], cast=[True])
@case("CPY", type_src=[F16], type_dst=[F32], ne=[(33, 5, 1, 1)], cast=[True])
def cast(new: Leaves, type_src: GGMLType, type_dst: GGMLType, ne: Shape, cast: bool) -> Tensor:
    return ops.cast(new(ne, type_src, uniform(-150, 150)), type_dst)


@case("CPY", max_nmse=_cpy_bound, type_src=[F32, F16, BF16], type_dst=WRITABLE, ne=[(256, 2, 3, 4)],
      permute_src=[AS_IT_IS, (0, 2, 1, 3)])
@case("CPY", max_nmse=_cpy_bound, type_src=STORED + READABLE, type_dst=[F32], ne=[(256, 2, 3, 4)],
      permute_src=[(0, 2, 1, 3)])
@case("CPY", max_nmse=_cpy_bound, type_src=[F32], type_dst=STORED, ne=[(96, 1, 1, 1)],
      permute_src=[AS_IT_IS])
@case("CPY", max_nmse=_cpy_bound, type_src=STORED, type_dst=[F32], ne=[(96, 1, 1, 1)],
      permute_src=[AS_IT_IS])
@case("CPY", max_nmse=0, type_src=[F32], type_dst=[I32], ne=[(64, 2, 3, 4)],
      permute_src=PERMUTATIONS[1:])
@case("CPY", max_nmse=0, type_src=[I32], type_dst=[F32], ne=[(64, 2, 3, 4)],
      permute_src=PERMUTATIONS[1:])
@case("CPY", max_nmse=0, type_src=[F32], type_dst=[F32], ne=[(2, 300001, 1, 1), (2, 2, 70001, 1)],
      permute_src=[(1, 0, 2, 3)])
@case("CPY", max_nmse=_cpy_bound, type_src=[F32, F16, BF16], type_dst=[F32, F16, BF16],
      ne=[(256, 4, 3, 3), (1, 256, 4, 1)], permute_src=[(1, 0, 2, 3), (2, 0, 1, 3), (3, 1, 0, 2)],
      large=[True])
def cpy_more(
    new: Leaves, type_src: GGMLType, type_dst: GGMLType, ne: Shape, permute_src: Shape,
    large: bool = False,
) -> Tensor:
    return cpy(new, type_src, type_dst, ne, permute_src)


@case("CPY", max_nmse=0, type=[F32, F16, BF16, I32, *STORED, *READABLE], blocks=[1, 3],
      permute_src=[AS_IT_IS, (0, 2, 1, 3), (0, 3, 1, 2)],
      permute_dst=[AS_IT_IS, (0, 2, 1, 3)])
def cpy_same_type(
    new: Leaves, type: GGMLType, blocks: int, permute_src: Shape, permute_dst: Shape
) -> Tensor:
    """Build CPY of rows of `blocks` blocks, or elements, without conversion."""
    ne = (blocks * type.block_size, 2, 3, 4)
    a = new.permuted_view(ne, permute_src, type, WHOLE)
    return ops.cpy(a, new.permuted_view(ne, permute_dst, type))


@case("CPY", max_nmse=0, type=[F32, F16, BF16, I32], ne=[(256, 4, 3, 3), (33, 5, 1, 1)],
      transposed=["src", "dst", "both"])
def cpy_transposed(new: Leaves, type: GGMLType, ne: Shape, transposed: str) -> Tensor:
    n0, n1, *outer = ne

    def make(which: str) -> Tensor:
        if transposed in (which, "both"):
            return ops.transpose(new((n1, n0, *outer), type, WHOLE))
        return new(ne, type, WHOLE)

    return ops.cpy(make("src"), make("dst"))


@case("CPY", max_nmse=0, type=[F32, F16, STORED[0]], ne=[(128, 2, 3, 2)], half_src=[None, 0, 1],
      half_dst=[0, 1, 2])
def cpy_halves(
    new: Leaves, type: GGMLType, ne: Shape, half_src: int | None, half_dst: int
) -> Tensor:
    """Build CPY to half of a larger tensor, from a half or a whole one."""
    a = new(ne, type) if half_src is None else new.second_half(ne, half_src, type)
    return ops.cpy(a, new.second_half(ne, half_dst, type))


ORDERS: list[Shape] = [
    (3, 5, 7, 32), (5, 3, 32, 7), (7, 32, 3, 5), (32, 3, 5, 7), (32, 7, 5, 3), (5, 7, 32, 3),
]


@case("CPY", max_nmse=0, type=[F32, F16], ne=ORDERS, to=[(3, 5, 7, 32), (32, 7, 5, 3)])
@case("CPY", max_nmse=0, type=[STORED[0]], ne=[(32, 3, 5, 7), (32, 5, 7, 3)], to=[(32, 7, 5, 3)])
def cpy_reshaped(new: Leaves, type: GGMLType, ne: Shape, to: Shape) -> Tensor:
    return ops.cpy(new(ne, type), new(to, type))


differs_from_ggml("CPY", "rounds halves to the even level with vectors, else away from zero",
                  type_src=[F16, BF16], type_dst=[BY_NAME["q8_0"]])
crashes_ggml("CPY", "calls a missing function to decode this type",
             type_src=PARTNERS)

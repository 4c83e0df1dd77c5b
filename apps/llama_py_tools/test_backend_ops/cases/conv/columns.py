"""Test cases of IM2COL and IM2COL_3D (ggml_py/ops/conv.py), and of convolutions that use them.

llama.cpp crosses every stride with every padding and dilation (2051 cases of IM2COL_3D).
"""

from __future__ import annotations

from itertools import product

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import F16, F32, GGMLType
from llama_py_tools.test_backend_ops.case import Leaves, case
from llama_py_tools.test_backend_ops.cases.conv.direct import BF16, ONES, UNITS

Shape = tuple[int, ...]
# s0 s1 p0 p1 d0 d1
PLANES: list[Shape] = [
    (s0, s1, p0, p1, d0, d1)
    for s0, s1 in ((1, 3), (3, 1), (3, 3)) for p0, p1 in ((0, 3), (3, 0), (3, 3))
    for d0, d1 in ((1, 3), (3, 1), (1, 1))
]


def _part(new: Leaves, ne: Shape, type: GGMLType, apart: bool) -> Tensor:
    """Add a tensor with gaps between channels and batches, which ggml's IM2COL supports."""
    if not apart:
        return new(ne, type)
    parent = new((ne[0], ne[1], ne[2] + 1, ne[3] + 1), type)
    return ops.view_4d(parent, *ne, *parent.nb[1:], 0)  # type: ignore[call-arg]


@case("IM2COL", type_input=[F32], type_kernel=[F32, F16], dst_type=[F32, F16],
      ne_input=[(10, 10, 3, 1)], ne_kernel=[(3, 3, 3, 1)], p=[UNITS], is_2D=[True])
@case("IM2COL", type_input=[F16], type_kernel=[F16], dst_type=[F16, F32],
      ne_input=[(10, 10, 3, 2)], ne_kernel=[(3, 3, 3, 1)], p=[UNITS], is_2D=[True])
@case("IM2COL", type_input=[F32], type_kernel=[F32], dst_type=[F32], ne_input=[(20, 20, 2, 2)],
      ne_kernel=[(3, 3, 2, 2)], p=[UNITS, *PLANES], is_2D=[True], apart=[False, True])
@case("IM2COL", type_input=[F32], type_kernel=[F32], dst_type=[F32], ne_input=[(20, 2, 2, 1)],
      ne_kernel=[(3, 2, 2, 1)], is_2D=[False],
      p=[(s, 0, p, 0, d, 0) for s in (1, 3) for p in (0, 3) for d in (1, 3)])
@case("IM2COL", type_input=[F32], type_kernel=[F16], dst_type=[F32, F16],
      ne_input=[(3000, 128, 1, 1)], ne_kernel=[(3, 128, 1280, 1)], p=[(1, 0, 1, 0, 1, 0)],
      is_2D=[False])
@case("IM2COL", type_input=[F32], type_kernel=[F16], dst_type=[F16], p=[UNITS], is_2D=[True],
      ne_input=[(12, 12, 2, 32), (12, 12, 2, 1024)], ne_kernel=[(3, 3, 2, 32)])
@case("IM2COL", type_input=[F32], type_kernel=[F16], dst_type=[F16], ne_input=[(5, 5, 1, 32)],
      ne_kernel=[(3, 4, 1, 32)], p=[(1, 1, 0, 0, 1, 1)], is_2D=[True])
@case("IM2COL", type_input=[F32], type_kernel=[F32], dst_type=[F32], ne_input=[(2, 2, 1536, 29)],
      ne_kernel=[(2, 2, 1536, 4096)], p=[(1, 1, 0, 0, 1, 1)], is_2D=[True])
@case("IM2COL", type_input=[F32], type_kernel=[F16], dst_type=[F16], ne_input=[(70, 68, 2, 1)],
      ne_kernel=[(32, 33, 2, 1), (33, 34, 2, 1)], p=[UNITS], is_2D=[True])
@case("IM2COL", type_input=[F32], type_kernel=[F32], dst_type=[F32], ne_input=[(20, 20, 2, 2)],
      ne_kernel=[(3, 3, 2, 2)], is_2D=[True], apart=[False],
      p=[(s, s, p, 3 - p, d, 4 - d) for s in (1, 3) for p in (0, 3) for d in (1, 3)])
@case("IM2COL", type_input=[F32], type_kernel=[F16], dst_type=[F16], p=[UNITS], is_2D=[True],
      ne_input=[(12, 12, 1, 32), (12, 12, 1, 2560)], ne_kernel=[(3, 3, 1, 32)])
@case("IM2COL", type_input=[F32], type_kernel=[F16], dst_type=[F16], p=[UNITS], is_2D=[True],
      ne_input=[(128, 128, 1, 2)], ne_kernel=[(32, 33, 1, 2)])
@case("IM2COL", perf=True, type_input=[F32], type_kernel=[F16], dst_type=[F32],
      ne_input=[(256, 256, 256, 1)], ne_kernel=[(3, 3, 256, 1)], p=[UNITS],
      is_2D=[True])
def im2col(
    new: Leaves, type_input: GGMLType, type_kernel: GGMLType, dst_type: GGMLType, ne_input: Shape,
    ne_kernel: Shape, p: Shape, is_2D: bool, apart: bool = False,
) -> Tensor:
    a, b = new(ne_kernel, type_kernel), _part(new, ne_input, type_input, apart)
    return ops.im2col(a, b, *p, is_2D, dst_type)  # type: ignore[call-arg, arg-type]


TRIPLES = list(product((1, 3), repeat=3))


@case("IM2COL_3D", type_kernel=[F32, F16], dst_type=[F32, F16], ne_input=[(10, 10, 10, 9)], IC=[3],
      s=[ONES], p=[ONES], d=[ONES])
@case("IM2COL_3D", type_kernel=[F32], dst_type=[F32], ne_input=[(20, 20, 10, 3)], IC=[1, 3],
      s=[ONES, (3, 1, 1), (1, 3, 1), (1, 1, 3)], p=[(0, 3, 0), (3, 0, 3)],
      d=[(1, 1, 3), (3, 1, 1), (1, 3, 1)], v=[False])
@case("IM2COL_3D", type_kernel=[F32], dst_type=[F32], ne_input=[(20, 20, 10, 3)], IC=[1],
      s=[(1, 3, 1), (3, 3, 3)], p=[(0, 3, 0), (3, 3, 3)], d=[ONES, (3, 3, 3)],
      v=[True])
@case("IM2COL_3D", type_kernel=[F32], dst_type=[F32], ne_input=[(12, 11, 10, 3)], IC=[1, 3],
      s=TRIPLES, p=[(0, 0, 3), (3, 3, 0)], d=[(1, 1, 1), (1, 3, 3), (3, 3, 1)],
      v=[False])
@case("IM2COL_3D", type_kernel=[F32], dst_type=[F32], ne_input=[(12, 11, 10, 5)], IC=[1, 3],
      s=TRIPLES, p=[(0, 3, 3), (3, 0, 0)], d=[(1, 1, 3), (3, 1, 1)], v=[True])
@case("IM2COL_3D", type_kernel=[F32], dst_type=[F32], ne_input=[(12, 11, 10, 3)], IC=[3],
      s=[ONES, (3, 3, 1)], p=[(0, 0, 0), (0, 3, 3), (3, 3, 3)], d=TRIPLES, v=[False])
@case("IM2COL_3D", perf=True, type_kernel=[F16], dst_type=[F16], ne_input=[(32, 32, 8, 12)], IC=[3],
      s=[ONES], p=[ONES], d=[ONES])
def im2col_3d(
    new: Leaves, type_kernel: GGMLType, dst_type: GGMLType, ne_input: Shape, IC: int,
    s: ops.Triple, p: ops.Triple, d: ops.Triple, v: bool = False,
) -> Tensor:
    b = new(ne_input)
    if v:
        b = ops.view_4d(b, *(n - 2 for n in b.ne), *b.nb[1:], 0)  # type: ignore[call-arg]
    return ops.im2col_3d(new((3, 3, 3, 3), type_kernel), b, IC, s, p, d, dst_type)


# The forms through IM2COL and MUL_MAT: whole graphs, so that views between the two are tried.


@case("CONV_1D", max_nmse=5e-4, ne_input=[(97, 33, 3)], ne_kernel=[(5, 33, 17)],
      type_kernel=[F32, F16], p=[(1, 0, 1), (2, 2, 2)])
def conv_1d(
    new: Leaves, ne_input: Shape, ne_kernel: Shape, type_kernel: GGMLType, p: ops.Triple
) -> Tensor:
    return ops.conv_1d(new(ne_kernel, type_kernel), new(ne_input), *p)


@case("CONV_1D_DW", max_nmse=5e-4, ne_input=[(64, 16)], ne_kernel=[(3, 1, 16)],
      type_kernel=[F32, F16, BF16], p=[(1, 0, 1)])
@case("CONV_1D_DW", max_nmse=5e-4, ne_input=[(64, 16)], ne_kernel=[(7, 1, 16)],
      type_kernel=[F32, F16, BF16], p=[(1, 3, 1)])
@case("CONV_1D_DW", max_nmse=5e-4, ne_input=[(97, 33)], ne_kernel=[(5, 1, 33)],
      type_kernel=[F32, F16, BF16], p=[(2, 2, 2)])
def conv_1d_dw(
    new: Leaves, ne_input: Shape, ne_kernel: Shape, type_kernel: GGMLType, p: ops.Triple
) -> Tensor:
    return ops.conv_1d_dw(new(ne_kernel, type_kernel), new(ne_input), *p)


@case("CONV_2D_COLUMNS", max_nmse=5e-4, ne_input=[(19, 17, 8, 2)], ne_kernel=[(3, 2, 8, 33)],
      type_kernel=[F32, F16], dw=[False])
@case("CONV_2D_COLUMNS", max_nmse=5e-4, ne_input=[(19, 17, 8, 2)], ne_kernel=[(3, 2, 1, 8)],
      type_kernel=[F32, F16], dw=[True])
def conv_2d_columns(
    new: Leaves, ne_input: Shape, ne_kernel: Shape, type_kernel: GGMLType, dw: bool
) -> Tensor:
    conv = ops.conv_2d_dw if dw else ops.conv_2d
    return conv(new(ne_kernel, type_kernel), new(ne_input), 1, 2, 1, 0, 2, 1)


@case("CONV_3D_COLUMNS", max_nmse=5e-4, IC=[3], OC=[5], N=[2], type_kernel=[F32, F16])
def conv_3d_columns(new: Leaves, IC: int, OC: int, N: int, type_kernel: GGMLType) -> Tensor:
    a, b = new((3, 2, 3, IC * OC), type_kernel), new((9, 11, 7, IC * N))
    return ops.conv_3d(a, b, IC, (1, 2, 1), ONES, (2, 1, 1))

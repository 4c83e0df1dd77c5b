"""Cases of ggml_py/ops/conv.py without columns.

llama.cpp crosses every stride with every padding and dilation (3144 cases of CONV_2D). Here each
value meets each other value of at least one other parameter.
"""

from __future__ import annotations

from math import prod

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME, F16, F32, GGMLType
from llama_py_tools.test_backend_ops.case import Leaves, case
from llama_py_tools.test_backend_ops.differences import differs_from_ggml

Shape = tuple[int, ...]
BF16 = BY_NAME["bf16"]
UNITS: Shape = (1, 1, 1, 1, 1, 1)
ONES = (1, 1, 1)


def _inner_channels(t: Tensor) -> Tensor:
    """Return the same tensor with dimension 2 (of an image) innermost in memory."""
    return ops.permute(ops.cont(ops.permute(t, 1, 2, 0, 3)), 2, 0, 1, 3)


def _inner_last(t: Tensor) -> Tensor:
    """Return the same kernel with dimension 3 innermost in memory, then 2."""
    return ops.permute(ops.cont(ops.permute(t, 2, 3, 1, 0)), 3, 2, 0, 1)


def _flops_2d(ne_input: Shape, ne_kernel: Shape, **_: object) -> float:
    """Return the FLOPs at stride 1 and full padding."""
    places = ne_input[0] * ne_input[1] * ne_input[3]
    return 2.0 * places * ne_kernel[0] * ne_kernel[1] * ne_kernel[2] * ne_kernel[3]


SMALL = [
    ((w, h, c, 2), (kw, kh, c, oc))
    for w, h in ((1, 133), (141, 1), (141, 31)) for kw, kh in ((1, 3), (2, 2), (3, 1), (11, 3))
    for c, oc in ((1, 12), (25, 1), (7, 33))
]


def _fits(ne_input: Shape, ne_kernel: Shape, p: Shape) -> bool:
    return all(
        ne_input[i] + 2 * p[2 + i] - p[4 + i] * (ne_kernel[i] - 1) - 1 > -p[i] for i in (0, 1)
    )


def _conv_2d(
    new: Leaves, ne_input: Shape, ne_kernel: Shape, type_kernel: GGMLType, p: Shape, cwhn: bool,
    kernel_offset: int = 0,
) -> Tensor:
    b = new(ne_input)
    kw, kh, c, oc = ne_kernel
    a = new((kw * kh * c * oc + kernel_offset,), type_kernel)
    a = ops.view_4d(a, kw, kh, c, oc, *Tensor(type_kernel, ne_kernel).nb[1:],
                    kernel_offset * type_kernel.type_size)
    if cwhn:
        a, b = _inner_last(a), _inner_channels(b)
    return ops.conv_2d_direct(a, b, *p)


_input: Shape
_p: Shape
for _input, _kernel in SMALL:
    for _p in ((1, 5, 5, 2, 2, 4), (3, 5, 5, 5, 2, 4)):
        if _fits(_input, _kernel, _p):
            case("CONV_2D", ne_input=[_input], ne_kernel=[_kernel], type_kernel=[F32, F16], p=[_p],
                 cwhn=[False, True])(_conv_2d)


for _input, _kernel, _p in (
    ((19, 17, 8, 2), (3, 3, 8, 65), UNITS), ((19, 17, 16, 3), (3, 3, 16, 33), (2, 3, 4, 2, 2, 1)),
    ((13, 11, 16, 3), (1, 1, 16, 33), (1, 1, 0, 0, 1, 1)), ((64, 64, 48, 1), (3, 3, 48, 96), UNITS),
):
    case("CONV_2D", ne_input=[_input], ne_kernel=[_kernel], type_kernel=[F32, F16, BF16], p=[_p],
         cwhn=[False, True])(_conv_2d)


_p = (1, 5, 5, 5, 2, 4)
for _channels, _out in ((1, 1), (1, 12), (25, 1), (25, 12)):
    for _input, _size in (((141, 133), (11, 11)), ((1, 1), (1, 1)), ((141, 1), (11, 2)),
                          ((1, 133), (2, 11)), ((141, 133), (1, 1))):
        case("CONV_2D", ne_input=[(*_input, _channels, 2)], type_kernel=[F32, F16],
             ne_kernel=[(*_size, _channels, _out)], p=[_p, (3, 5, 5, 2, 2, 1)],
             cwhn=[False, True])(_conv_2d)


case("CONV_2D", ne_input=[(19, 17, 8, 2)], ne_kernel=[(3, 3, 8, 17)], type_kernel=[F32, F16],
     p=[UNITS], cwhn=[False], kernel_offset=[1])(_conv_2d)
case("CONV_2D", perf=True, flops=_flops_2d, ne_input=[(256, 256, 192, 1)],
     ne_kernel=[(3, 3, 192, 96)], type_kernel=[F32, F16], p=[UNITS],
     cwhn=[False, True])(_conv_2d)


@case("CONV_2D_DW", ne_input=[(17, 34, 9, 1)], ne_kernel=[(3, 3, 1, 9)], type_kernel=[F32, F16],
      stride=[1], padding=[0], dilation=[1], cwhn=[False, True])
@case("CONV_2D_DW", ne_input=[(32, 8, 64, 1)], ne_kernel=[(3, 3, 1, 64)], type_kernel=[F32, F16],
      stride=[2], padding=[1], dilation=[1], cwhn=[False, True])
@case("CONV_2D_DW", ne_input=[(33, 12, 35, 3)], ne_kernel=[(5, 2, 1, 35)], type_kernel=[F32, F16],
      stride=[1, 3], padding=[0, 4], dilation=[1, 2], cwhn=[False, True])
@case("CONV_2D_DW", perf=True, ne_input=[(112, 112, 32, 1)], ne_kernel=[(3, 3, 1, 32)],
      type_kernel=[F32], stride=[1], padding=[1], dilation=[1], cwhn=[False, True])
def conv_2d_dw(
    new: Leaves, ne_input: Shape, ne_kernel: Shape, type_kernel: GGMLType, stride: int,
    padding: int, dilation: int, cwhn: bool,
) -> Tensor:
    a, b = new(ne_kernel, type_kernel), new(ne_input)
    if cwhn:
        a, b = _inner_last(a), _inner_channels(b)
    return ops.conv_2d_dw_direct(a, b, stride, stride, padding, padding, dilation, dilation)


@case("CONV_2D_DW", ne_input=[(17, 9, 5, 2)], type_kernel=[F32, F16], v=["image", "kernel"])
def conv_2d_dw_strided(new: Leaves, ne_input: Shape, type_kernel: GGMLType, v: str) -> Tensor:
    """Build the op with channels innermost in only one tensor, or with gaps between
    planes."""
    a = new((3, 3, 1, ne_input[2]), type_kernel)
    if v == "kernel":
        a, b = _inner_last(a), new.part(ne_input)
    else:
        b = _inner_channels(new(ne_input))
    return ops.conv_2d_dw_direct(a, b, 1, 2, 1, 1, 1, 1)


def _flops_3d(size: ops.Triple, kernel: ops.Triple, IC: int, OC: int, N: int, **_: object) -> float:
    """Return the FLOPs at stride 1 and full padding."""
    return 2.0 * prod(size) * prod(kernel) * IC * OC * N


@case("CONV_3D", N=[1, 2], IC=[1, 3], OC=[1, 4], size=[(20, 12, 8)], kernel=[(3, 3, 3)], s=[ONES],
      p=[(0, 0, 0), ONES], d=[ONES, (2, 2, 2)], type_kernel=[F32, F16])
@case("CONV_3D", N=[1, 2], IC=[1, 3], OC=[4], size=[(20, 12, 8)], kernel=[(3, 3, 3), (5, 1, 3)],
      s=[(2, 2, 2), (2, 1, 1)], p=[(2, 0, 1)], d=[(1, 1, 2)], type_kernel=[F32, F16])
@case("CONV_3D", N=[1], IC=[4], OC=[8], size=[(8, 8, 8)], kernel=[(1, 1, 1)], s=[ONES],
      p=[(0, 0, 0)], d=[ONES], type_kernel=[F32, F16])
@case("CONV_3D", N=[2], IC=[8], OC=[65], size=[(9, 11, 5)], kernel=[(3, 3, 3)], s=[ONES],
      p=[ONES], d=[ONES], type_kernel=[F32, F16, BF16], kernel_offset=[0, 1])
@case("CONV_3D", N=[2], IC=[5], OC=[17], size=[(13, 9, 7)], kernel=[(4, 3, 2)], s=[(2, 1, 3)],
      p=[(3, 2, 2)], d=[(2, 1, 2)], type_kernel=[F32, F16])
@case("CONV_3D", N=[3], IC=[16], OC=[33], size=[(9, 7, 3)], kernel=[(1, 1, 1), (1, 1, 3)],
      s=[(1, 1, 2)], p=[(0, 0, 2)], d=[(1, 1, 2)], type_kernel=[F32, F16])
@case("CONV_3D", N=[2], IC=[3], OC=[7], size=[(1, 2, 1)], kernel=[(1, 1, 1)], s=[ONES],
      p=[(3, 4, 2)], d=[ONES], type_kernel=[F32, F16])
@case("CONV_3D", N=[1, 2], IC=[1, 3], OC=[4], size=[(20, 22, 9)], kernel=[(3, 3, 3)],
      s=[(2, 2, 2)], p=[(0, 0, 0), ONES], d=[(2, 2, 2)], type_kernel=[F32, F16])
@case("CONV_3D", N=[2], IC=[8], OC=[33], size=[(9, 5, 7)], kernel=[(1, 1, 3)], s=[(1, 1, 2)],
      p=[(0, 0, 2)], d=[(1, 1, 2)], type_kernel=[F32, F16])
@case("CONV_3D", N=[1], IC=[1], OC=[1], size=[(2, 2, 2)],
      kernel=[(0, 1, 1), (1, 0, 1), (1, 1, 0)], s=[ONES], p=[(0, 0, 0)], d=[ONES],
      type_kernel=[F32, F16])
@case("CONV_3D", perf=True, flops=_flops_3d, N=[1], IC=[16], OC=[32], size=[(32, 32, 8)],
      kernel=[(3, 3, 3)], s=[ONES], p=[ONES], d=[ONES], type_kernel=[F32, F16])
def conv_3d(
    new: Leaves, N: int, IC: int, OC: int, size: ops.Triple, kernel: ops.Triple, s: ops.Triple,
    p: ops.Triple, d: ops.Triple, type_kernel: GGMLType, kernel_offset: int = 0,
) -> Tensor:
    ne = (*kernel, IC * OC)
    a = new((ne[0] * ne[1] * ne[2] * ne[3] + kernel_offset,), type_kernel)
    a = ops.view_4d(a, *ne, *Tensor(type_kernel, ne).nb[1:], kernel_offset * type_kernel.type_size)
    return ops.conv_3d_direct(a, new((*size, IC * N)), s, p, d, IC, N, OC)


differs_from_ggml("CONV_2D_DW", "assumes a contiguous kernel", gaps=[0])

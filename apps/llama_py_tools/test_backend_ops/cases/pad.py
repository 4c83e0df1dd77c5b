"""Test cases of ggml_py/ops/pad.py."""

from __future__ import annotations

from ggml_py import ops
from ggml_py.tensor import Tensor
from llama_py_tools.test_backend_ops.case import Leaves, case

Shape = tuple[int, ...]


@case("PAD", max_nmse=0, ne_a=[(33, 5, 3, 2), (1, 1, 1, 1)],
      pad=[(1, 0, 0, 0), (0, 3, 0, 0), (0, 0, 2, 0), (0, 0, 0, 8), (1, 2, 3, 4)],
      v=[False])
@case("PAD", max_nmse=0, ne_a=[(33, 5, 3, 2)], pad=[(1, 2, 0, 1)], v=[True])
@case("PAD", max_nmse=0, ne_a=[(1023, 8, 1, 1), (1024, 2, 1, 1), (2049, 1, 1, 1)],
      pad=[(1, 0, 0, 0), (0, 1, 0, 0)], v=[False])
@case("PAD", max_nmse=0, ne_a=[(100, 1, 1, 1), (100, 100, 1, 1)],
      pad=[(100, 0, 0, 0), (0, 100, 0, 0), (50, 50, 0, 0)], v=[False])
@case("PAD", perf=True, ne_a=[(4096, 500, 1, 1)], pad=[(0, 12, 0, 0)], v=[False])
def pad(new: Leaves, ne_a: Shape, pad: Shape, v: bool) -> Tensor:
    return ops.pad(new.part(ne_a) if v else new(ne_a), *pad)


@case("PAD", max_nmse=0, ne_a=[(33, 5, 3, 2)],
      pads=[(1, 1, 1, 1, 1, 1, 1, 1), (3, 0, 0, 2, 1, 0, 0, 1)])
def pad_ext(new: Leaves, ne_a: Shape, pads: Shape) -> Tensor:
    return ops.pad_ext(new(ne_a), *pads)


@case("PAD", max_nmse=0, ne_a=[(33, 17, 2, 1)], pad=[(4, 3, 0, 0), (33, 17, 2, 1)],
      circular=[True])
def pad_circular(new: Leaves, ne_a: Shape, pad: Shape, circular: bool) -> Tensor:
    return ops.pad_circular(new(ne_a), *pad)


@case("PAD", max_nmse=0, ne_a=[(64, 65, 1, 1)], pads=[(0, 1, 0, 1, 0, 0, 0, 0)], tfrm=[0, 1, 2],
      circular=[False, True])
@case("PAD", max_nmse=0, ne_a=[(11, 22, 18, 16)],
      pads=[(1, 2, 3, 4, 5, 6, 7, 8), (0, 2, 0, 4, 0, 6, 0, 8)], tfrm=[0, 1, 2],
      circular=[False, True])
def pad_ext_there(new: Leaves, ne_a: Shape, pads: Shape, tfrm: int, circular: bool) -> Tensor:
    """Build PAD; tfrm 1: of a window of the first halves, 2: with dimensions 0 and 1 swapped."""
    a = new(ne_a)
    if tfrm == 1:
        a = ops.view_4d(a, *((n + 1) // 2 for n in a.ne), *a.nb[1:], 0)  # type: ignore[call-arg]
    elif tfrm == 2:
        a = ops.permute(a, 2, 1, 0, 3)
    return (ops.pad_ext_circular if circular else ops.pad_ext)(a, *pads)


@case("PAD_REFLECT_1D", max_nmse=0, ne_a=[(512, 34, 2, 1), (300, 38, 4, 1)], pad_0=[10], pad_1=[9])
@case("PAD_REFLECT_1D", max_nmse=0, ne_a=[(3000, 384, 1, 1), (3000, 5, 4, 1)], pad_0=[10],
      pad_1=[9])
@case("PAD_REFLECT_1D", max_nmse=0, ne_a=[(7, 3, 2, 2)], pad_0=[0, 6], pad_1=[0, 6])
@case("PAD_REFLECT_1D", perf=True, ne_a=[(4096, 512, 1, 1)], pad_0=[10], pad_1=[9])
def pad_reflect_1d(new: Leaves, ne_a: Shape, pad_0: int, pad_1: int) -> Tensor:
    return ops.pad_reflect_1d(new(ne_a), pad_0, pad_1)


@case("ROLL", max_nmse=0, shifts=[(3, -2, 1, -1), (-9, 4, -3, 2), (0, 0, 0, 0)],
      permute=[False])
@case("ROLL", max_nmse=0, shifts=[(3, -2, 1, -1)], permute=[True])
@case("ROLL", perf=True, shifts=[(3, -2, 0, 0)], permute=[False], ne=[(4096, 512, 1, 1)])
def roll(new: Leaves, shifts: Shape, permute: bool, ne: Shape = (10, 5, 4, 3)) -> Tensor:
    a = new(ne)
    return ops.roll(ops.permute(a, 0, 2, 1, 3) if permute else a, *shifts)

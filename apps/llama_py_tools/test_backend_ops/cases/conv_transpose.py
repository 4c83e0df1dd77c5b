"""Test cases of ggml_py/ops/conv_transpose.py."""

from __future__ import annotations

from math import prod

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME, F16, F32, GGMLType
from llama_py_tools.test_backend_ops.case import Leaves, case
from llama_py_tools.test_backend_ops.differences import differs_from_ggml

Shape = tuple[int, ...]


@case("CONV_TRANSPOSE_1D", Cout=[1, 9], Cin=[1, 7], K=[1, 3, 1337], L=[1, 2, 13], s0=[1, 2, 3])
@case("CONV_TRANSPOSE_1D", Cout=[32], Cin=[32], K=[16], L=[197], s0=[1], type_kernel=[F32, F16])
@case("CONV_TRANSPOSE_1D", Cout=[3], Cin=[2], K=[2, 3], L=[3], s0=[1, 2, 3],
      type_kernel=[F32, F16])
@case("CONV_TRANSPOSE_1D", perf=True, flops=lambda Cout, Cin, K, L, **_: 2.0 * Cout * Cin * K * L,
      Cout=[32], Cin=[64], K=[16], L=[512], s0=[8])
def conv_transpose_1d(
    new: Leaves, Cout: int, Cin: int, K: int, L: int, s0: int, type_kernel: GGMLType = F32
) -> Tensor:
    return ops.conv_transpose_1d(new((K, Cout, Cin), type_kernel), new((L, Cin)), s0)


@case("CONV_TRANSPOSE_1D", K=[5], v=["kernel", "input"])
def conv_transpose_1d_strided(new: Leaves, K: int, v: str) -> Tensor:
    a = new.part((K, 3, 4)) if v == "kernel" else new((K, 3, 4))
    b = new.half_rows((11, 4)) if v == "input" else new((11, 4))
    return ops.conv_transpose_1d(a, b, 2)


def _flops_2d(ne_input: Shape, ne_kernel: Shape, **_: object) -> float:
    return 2.0 * prod(ne_input) * prod(ne_kernel[:3])


@case("CONV_TRANSPOSE_2D", type_kernel=[F32, F16], ne_input=[(3, 2, 3, 1)],
      ne_kernel=[(2, 2, 1, 3)], stride=[1, 3])
@case("CONV_TRANSPOSE_2D", type_kernel=[F32, F16], ne_input=[(10, 10, 9, 1), (10, 10, 9, 2)],
      ne_kernel=[(3, 3, 1, 9), (1, 4, 5, 9)], stride=[2])
@case("CONV_TRANSPOSE_2D", type_kernel=[F32, F16], ne_input=[(129, 63, 35, 1)],
      ne_kernel=[(3, 3, 48, 35)], stride=[1])
@case("CONV_TRANSPOSE_2D", perf=True, flops=_flops_2d, type_kernel=[F32],
      ne_input=[(32, 32, 16, 1)], ne_kernel=[(3, 3, 16, 16)], stride=[2])
def conv_transpose_2d(
    new: Leaves, type_kernel: GGMLType, ne_input: Shape, ne_kernel: Shape, stride: int
) -> Tensor:
    return ops.conv_transpose_2d_p0(new(ne_kernel, type_kernel), new(ne_input), stride)


def _col2im_bound(type: GGMLType, **_: object) -> float:
    return 1e-7 if type is F32 else 5e-4


# K, OC, T_in, s0, p0
SIGNALS: list[Shape] = [
    (16, 32, 197, 8, 0), (4, 3, 7, 2, 0), (1, 5, 13, 1, 0), (6, 4, 11, 3, 1), (2, 3, 9, 3, 0),
    (5, 4, 11, 2, 0), (8, 4, 13, 4, 2), (4, 3, 1, 2, 0), (16, 1, 197, 8, 0), (1, 5, 13, 3, 0),
    (8, 2, 3, 2, 5),
]  # fmt: skip


@case("COL2IM_1D", max_nmse=_col2im_bound, type=[F32, F16, BY_NAME["bf16"]], signal=SIGNALS)
@case("COL2IM_1D", perf=True, type=[F32], signal=[(16, 512, 2048, 8, 0)])
def col2im_1d(new: Leaves, type: GGMLType, signal: Shape) -> Tensor:
    k, oc, n, s0, p0 = signal
    return ops.col2im_1d(new((k * oc, n), type), s0, oc, p0)


differs_from_ggml("CONV_TRANSPOSE_1D", "also rounds its input to f16", type_kernel=[F16], L=[3])
differs_from_ggml("CONV_TRANSPOSE_2D", "also rounds its input to f16", type_kernel=[F16],
                  ne_input=[(3, 2, 3, 1)])

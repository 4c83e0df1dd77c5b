"""Test cases of ggml_py/ops/upscale.py."""

from __future__ import annotations

from ggml_py import ops
from ggml_py.tensor import Tensor
from llama_py_tools.test_backend_ops.case import Leaves, case
from llama_py_tools.test_backend_ops.differences import differs_from_ggml

Shape = tuple[int, int, int, int]
MODES = ["nearest", "bilinear", "bicubic"]


def _upscale_bound(mode: str, **_: object) -> float:
    return 0.0 if mode == "nearest" else 1e-7


@case("UPSCALE", max_nmse=_upscale_bound, ne=[(128, 96, 3, 2)], scale_factor=[2, 3], mode=MODES,
      transpose=[False, True])
@case("UPSCALE", ne=[(128, 96, 3, 2)], scale_factor=[2], mode=["bilinear"],
      transpose=[False, True], antialias=[True])
@case("UPSCALE", max_nmse=_upscale_bound, ne=[(512, 130, 1, 2)], scale_factor=[2], mode=MODES,
      transpose=[False, True])
@case("UPSCALE", perf=True, ne=[(512, 512, 3, 2)], scale_factor=[2], mode=MODES, transpose=[False])
def upscale(
    new: Leaves, ne: Shape, scale_factor: int, mode: str, transpose: bool, antialias: bool = False
) -> Tensor:
    a = ops.transpose(new(ne)) if transpose else new(ne)
    return ops.upscale(a, scale_factor, mode, antialias)


@case("UPSCALE", max_nmse=_upscale_bound, ne=[(2, 5, 7, 11)], ne_tgt=[(5, 7, 11, 13)], mode=MODES,
      align_corners=[False, True])
@case("UPSCALE", max_nmse=_upscale_bound, ne=[(5, 7, 11, 13)], ne_tgt=[(2, 5, 7, 11)], mode=MODES,
      align_corners=[False, True])
@case("UPSCALE", max_nmse=_upscale_bound, ne=[(1, 4, 3, 2)], ne_tgt=[(2, 8, 3, 2)], mode=MODES,
      align_corners=[True])
@case("UPSCALE", max_nmse=_upscale_bound, ne=[(4, 1, 3, 2)], ne_tgt=[(1, 1, 3, 2)], mode=MODES,
      align_corners=[True])
@case("UPSCALE", max_nmse=_upscale_bound, ne=[(49, 30, 2, 1), (33, 9, 1, 1)],
      ne_tgt=[(21, 90, 2, 1), (77, 3, 1, 3)], mode=MODES, align_corners=[False])
@case("UPSCALE", ne=[(2, 5, 7, 11)], ne_tgt=[(5, 7, 11, 13), (1, 3, 2, 11)], mode=["bilinear"],
      align_corners=[False], antialias=[True])
@case("UPSCALE", ne=[(97, 64, 3, 1)], ne_tgt=[(13, 10, 3, 1), (96, 200, 3, 1), (1, 1, 1, 1)],
      mode=["bilinear"], align_corners=[False, True], antialias=[True])
def interpolate(
    new: Leaves, ne: Shape, ne_tgt: Shape, mode: str, align_corners: bool, antialias: bool = False
) -> Tensor:
    return ops.interpolate(new(ne), *ne_tgt, mode, align_corners, antialias)


differs_from_ggml("UPSCALE", "omits the last pixel that contributes",
                  align_corners=[True], antialias=[True])

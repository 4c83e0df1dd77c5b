"""Test cases of ggml_py/ops/rope.py."""

from __future__ import annotations

from ggml_py import ops
from ggml_py.ops.rope import IMROPE, MROPE, NEOX, NORMAL, VISION
from ggml_py.tensor import Tensor
from ggml_py.types import F16, F32, I32, GGMLType
from llama_py_tools.test_backend_ops.case import Leaves, case, draws, integers, uniform

Shape = tuple[int, ...]
N_CTX = 512


def _sections(mode: int, n_dims: int) -> Shape:
    if mode == VISION:
        return (n_dims // 2, n_dims // 2, 0, 0)
    third = n_dims // 2 // 3
    return (n_dims // 2 - 2 * third, third, third, 0)


def _pairs(mode: int, n_dims: int) -> int:
    return n_dims if mode == VISION else n_dims // 2


@case("ROPE", type=[F32, F16], ne_a=[(128, 3, 2, 1), (64, 1, 33, 1)], n_dims=[64],
      mode=[NORMAL, NEOX])
@case("ROPE", type=[F32], ne_a=[(80, 5, 3, 1), (6, 1, 1, 1), (34, 2, 17, 3)], n_dims=[6],
      mode=[NORMAL, NEOX])
@case("ROPE", type=[F32], ne_a=[(128, 3, 5, 1)], n_dims=[128], mode=[NORMAL, NEOX], ff=[True])
@case("ROPE", type=[F32], ne_a=[(128, 3, 5, 1)], n_dims=[96, 128], mode=[NORMAL, NEOX],
      fs=[1.0, 0.25], ef=[0.0, 0.7465], af=[1.0, 1.4245], ff=[False])
@case("ROPE", type=[F32, F16], ne_a=[(128, 3, 5, 1)], n_dims=[128, 32], mode=[MROPE, IMROPE],
      ff=[False, True])
@case("ROPE", type=[F32], ne_a=[(128, 3, 5, 1)], n_dims=[128], mode=[MROPE, IMROPE], fs=[0.25],
      ef=[0.7465])
@case("ROPE", type=[F32], ne_a=[(80, 3, 5, 1)], n_dims=[40], mode=[VISION])
@case("ROPE", type=[F32], ne_a=[(64, 4, 7, 2)], n_dims=[32], mode=[NORMAL, NEOX, IMROPE], v=[True])
@case("ROPE", type=[F32], ne_a=[(64, 4, 0, 1)], n_dims=[32], mode=[NEOX])
@case("ROPE", type=[F32, F16], ne_a=[(80, 5, 2, 1)], n_dims=[20, 32, 80], mode=[NORMAL, NEOX],
      fs=[1.4245], ef=[0.0, 0.7465], af=[1.0, 1.4245], ff=[False, True],
      v=[False, True])
@case("ROPE", type=[F32, F16], ne_a=[(128, 12, 2, 1)], n_dims=[20, 128], mode=[MROPE, IMROPE],
      fs=[1.4245], ef=[0.0, 0.7465], af=[1.4245], ff=[True], v=[False, True])
@case("ROPE", type=[F32, F16], ne_a=[(80, 16, 2, 1)], n_dims=[40], mode=[VISION],
      fs=[1.0, 1.4245], ef=[0.0, 0.7465], af=[1.4245], ff=[False, True],
      v=[False, True])
@case("ROPE", type=[F32, F16], ne_a=[(36, 5, 257, 1), (64, 3, 5, 2)], n_dims=[36],
      mode=[NORMAL, NEOX, MROPE, IMROPE], ff=[False, True], half=[0, 1])
@case("ROPE", type=[F32, F16], ne_a=[(36, 5, 257, 1)], n_dims=[18], mode=[VISION], half=[0, 1, 2])
@case("ROPE", type=[F32, F16], ne_a=[(128, 4, 2, 1), (128, 4, 2, 3)], n_dims=[64],
      mode=[NORMAL, NEOX, MROPE, IMROPE, VISION], fs=[1.4245], ef=[0.7465], af=[1.4245],
      ff=[False, True], v=[False, True], inplace=[True])
@case("ROPE", type=[F32], ne_a=[(16, 2, 8192, 1)], n_dims=[16], mode=[NORMAL, NEOX, IMROPE])
@case("ROPE", type=[F32], ne_a=[(256, 8, 65, 1)], n_dims=[64, 256], mode=[NEOX, IMROPE])
@case("ROPE", type=[F32], ne_a=[(512, 8, 17, 1), (8192, 2, 2, 1)], n_dims=[128], mode=[NEOX],
      ff=[False, True])
@case("ROPE", type=[F32], ne_a=[(128, 3, 5, 1)], n_dims=[128], mode=[NEOX], fs=[0.25],
      ef=[0.7465], betas=[(0.0, 0.0), (32.0, 0.0), (0.0, 1.0)])
@case("ROPE", perf=True, type=[F32], ne_a=[(128, 32, 1, 1), (128, 32, 512, 1)], n_dims=[128],
      mode=[NORMAL, NEOX])
def rope(
    new: Leaves, type: GGMLType, ne_a: Shape, n_dims: int, mode: int, fs: float = 1.0,
    ef: float = 0.0, af: float = 1.0, ff: bool = False, v: bool = False, half: int | None = None,
    inplace: bool = False, betas: tuple[float, float] = (32.0, 1.0),
) -> Tensor:
    """Build ROPE; v: on a window of a larger tensor; half: on half of one; betas: of YaRN."""
    if half is not None:
        a = new.second_half(ne_a, half, type)
    else:
        a = (new.part if v else new)(ne_a, type)
    pos = new((ne_a[2] * (4 if mode & MROPE else 1),), I32, integers(0, N_CTX))
    factors = new((_pairs(mode, n_dims),), F32, uniform(0.9, 1.1)) if ff else None
    common = (mode, N_CTX, 10000.0, fs, ef, af, *betas)
    if mode & MROPE and not inplace:
        return ops.rope_multi(a, pos, factors, n_dims, _sections(mode, n_dims), *common)
    return ops.rope_ext(a, pos, factors, n_dims, *common, _sections(mode, n_dims), inplace=inplace)


@case("ROPE_BACK", type=[F32, F16], ne_a=[(128, 3, 5, 1)], n_dims=[64, 128], mode=[NORMAL, NEOX],
      fs=[1.0, 0.25], ef=[0.0, 0.7465], ff=[False, True])
@case("ROPE_BACK", type=[F32], ne_a=[(128, 12, 2, 1)], n_dims=[128, 32], mode=[MROPE, IMROPE])
@case("ROPE_BACK", type=[F32], ne_a=[(80, 16, 2, 1)], n_dims=[40], mode=[VISION])
@case("ROPE_BACK", type=[F32], ne_a=[(64, 4, 7, 2)], n_dims=[32], mode=[NORMAL, NEOX], v=[True])
@case("ROPE_BACK", type=[F32, F16], ne_a=[(80, 5, 2, 1)], n_dims=[20, 32], mode=[NORMAL, NEOX],
      fs=[1.4245], ef=[0.7465], ff=[False, True], v=[False, True])
@case("ROPE_BACK", type=[F32, F16], ne_a=[(128, 12, 2, 1)], n_dims=[20, 128],
      mode=[MROPE, IMROPE], fs=[1.4245], ef=[0.7465], ff=[True], v=[False, True])
@case("ROPE_BACK", type=[F32, F16], ne_a=[(80, 16, 2, 1)], n_dims=[40], mode=[VISION],
      fs=[1.4245], ef=[0.7465], ff=[False, True], v=[True])
@case("ROPE_BACK", type=[F32, F16], ne_a=[(36, 5, 257, 1)], n_dims=[36],
      mode=[NORMAL, NEOX, MROPE, IMROPE], ff=[False, True], half=[0, 1])
@case("ROPE_BACK", type=[F32], ne_a=[(16, 2, 8192, 1)], n_dims=[16], mode=[NORMAL, NEOX, IMROPE])
@case("ROPE_BACK", perf=True, type=[F32], ne_a=[(128, 32, 512, 1)], n_dims=[128],
      mode=[NORMAL, NEOX])
def rope_back(
    new: Leaves, type: GGMLType, ne_a: Shape, n_dims: int, mode: int, fs: float = 1.0,
    ef: float = 0.0, ff: bool = False, v: bool = False, half: int | None = None,
) -> Tensor:
    if half is not None:
        a = new.second_half(ne_a, half, type)
    else:
        a = (new.part if v else new)(ne_a, type)
    pos = new((ne_a[2] * (4 if mode & MROPE else 1),), I32, integers(0, N_CTX))
    factors = new((_pairs(mode, n_dims),), F32, uniform(0.9, 1.1)) if ff else None
    sections = _sections(mode, n_dims) if mode & MROPE else (0, 0, 0, 0)
    yarn = (fs, ef, 1.4245, 32.0, 1.0)
    return ops.rope_ext_back(a, pos, factors, n_dims, mode, N_CTX, 10000.0, *yarn, sections)


@case("ROPE", ne_a=[(128, 3, 5, 1)], n_dims=[64], mode=[NORMAL, NEOX], n_offs=[2, 32, 64])
@case("ROPE", ne_a=[(6, 2, 3, 1)], n_dims=[2], mode=[NORMAL, NEOX], n_offs=[4])
@case("ROPE", ne_a=[(128, 3, 2, 1)], n_dims=[24], mode=[NORMAL, NEOX, MROPE, IMROPE], n_offs=[32],
      type=[F32, F16], ff=[False, True], inplace=[False, True])
@case("ROPE_BACK", ne_a=[(128, 3, 2, 1)], n_dims=[24], mode=[NORMAL, NEOX, MROPE, IMROPE],
      n_offs=[32], type=[F32, F16], ff=[False, True], back=[True])
def rope_offset(
    new: Leaves, ne_a: Shape, n_dims: int, mode: int, n_offs: int, type: GGMLType = F32,
    ff: bool = False, inplace: bool = False, back: bool = False,
) -> Tensor:
    """Build ROPE with rotated dimensions in the middle or at the end of a head."""
    a, pos = new(ne_a, type), new((ne_a[2] * (4 if mode & MROPE else 1),), I32, integers(0, N_CTX))
    factors = new((_pairs(mode, n_dims),), F32, uniform(0.9, 1.1)) if ff else None
    common = (n_dims, mode, 0, 1e4, 1.4245, 0.7465, 1.0, 32.0, 1.0, _sections(mode, n_dims), n_offs)
    if back:
        return ops.rope_ext_back(a, pos, factors, *common)
    return ops.rope_ext(a, pos, factors, *common, inplace)


@case("ROPE", ne_a=[(64, 4, 7, 1)], mode=[NORMAL, NEOX], part_of_heads=[True])
def rope_view(new: Leaves, ne_a: Shape, mode: int, part_of_heads: bool) -> Tensor:
    """Build ROPE on the queries of a joint projection, with gaps between heads."""
    n0, n1, n2, _ = ne_a
    joint = new((n0 * (n1 + 4), n2))
    row = joint.type.row_size(n0)
    a = ops.view_3d(joint, n0, n1, n2, row, joint.nb[1], 2 * row)
    pos = new((n2,), I32, integers(0, N_CTX))
    return ops.rope_ext(a, pos, None, n0, mode, 0, 1e6, 1.0, 0.0, 1.0, 32.0, 1.0)


draws("ROPE", 1, lambda t: integers(0, N_CTX))
draws("ROPE_BACK", 1, lambda t: integers(0, N_CTX))

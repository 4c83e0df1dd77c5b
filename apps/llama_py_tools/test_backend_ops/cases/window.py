"""Cases of ggml_py/ops/window.py, which llama.cpp's tests lack."""

from __future__ import annotations

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import F16
from llama_py_tools.test_backend_ops.case import Leaves, case
from llama_py_tools.test_backend_ops.differences import IGNORES_STRIDES, differs_from_ggml

Shape = tuple[int, ...]


@case("WIN_PART", max_nmse=0, ne=[(32, 14, 14), (33, 20, 11), (1, 3, 5)], w=[1, 7, 14])
@case("WIN_PART", max_nmse=0, ne=[(33, 20, 11)], w=[7], v=[True])
@case("WIN_PART", perf=True, ne=[(768, 64, 64)], w=[14])
def win_part(new: Leaves, ne: Shape, w: int, v: bool = False) -> Tensor:
    return ops.win_part((new.part if v else new)(ne), w)


@case("WIN_UNPART", max_nmse=0, n=[33], size=[(14, 14), (20, 11), (3, 5)], w=[1, 7, 14])
@case("WIN_UNPART", max_nmse=0, n=[33], size=[(20, 11)], w=[7], v=[True])
@case("WIN_UNPART", perf=True, n=[768], size=[(64, 64)], w=[14])
def win_unpart(new: Leaves, n: int, size: Shape, w: int, v: bool = False) -> Tensor:
    width, height = size
    windows = -(-width // w) * -(-height // w)
    return ops.win_unpart((new.part if v else new)((n, w, w, windows)), width, height, w)


@case("WIN_UNPART", max_nmse=0, ne=[(9, 17, 13)], w=[5], round_trip=[True])
def win_round_trip(new: Leaves, ne: Shape, w: int, round_trip: bool) -> Tensor:
    return ops.win_unpart(ops.win_part(new(ne), w), ne[1], ne[2], w)


@case("GET_REL_POS", max_nmse=0, n_embd=[1, 33, 64], size=[1, 2, 14])
@case("GET_REL_POS", max_nmse=0, n_embd=[33], size=[14], v=[True])
@case("GET_REL_POS", perf=True, n_embd=[64], size=[64])
def get_rel_pos(new: Leaves, n_embd: int, size: int, v: bool = False) -> Tensor:
    a = (new.half_rows if v else new)((n_embd, 2 * size - 1), F16)
    return ops.get_rel_pos(a, size, size)


@case("ADD_REL_POS", size=[1, 2, 14, 33], queries=[(1, 1), (5, 3)], batch=[1, 3],
      inplace=[False, True])
@case("ADD_REL_POS", perf=True, size=[14], queries=[(14, 14)], batch=[300], inplace=[False])
def add_rel_pos(
    new: Leaves, size: int, queries: tuple[int, int], batch: int, inplace: bool
) -> Tensor:
    a = new((size * size, queries[0] * queries[1], batch))
    pw, ph = (new((size, *queries, batch)) for _ in "wh")
    return ops.add_rel_pos(a, pw, ph, inplace)


for _name in ("WIN_PART", "WIN_UNPART", "GET_REL_POS"):
    differs_from_ggml(_name, IGNORES_STRIDES, v=[True])

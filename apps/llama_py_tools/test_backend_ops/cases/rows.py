"""Test cases of ggml_py/ops/rows.py."""

from __future__ import annotations

import numpy as np

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME, F16, F32, I32, I64, GGMLType
from llama_py_tools.test_backend_ops.case import Array, Init, Leaves, case, draws, integers
from llama_py_tools.test_backend_ops.cases._quantized import (
    PARTNERS,
    QUANTIZED,
    STORED,
    WRITABLE,
    quantization_bound,
)
from llama_py_tools.test_backend_ops.differences import crashes_ggml, differs_from_ggml

Shape = tuple[int, ...]
PLAIN = [F32, F16, BY_NAME["bf16"]]
Q4_0, Q4_K, Q8_0 = BY_NAME["q4_0"], BY_NAME["q4_K"], BY_NAME["q8_0"]


@case("GET_ROWS", type=PLAIN, n=[1, 17, 257], m=[5], r=[1, 4], be1=[1, 3], be2=[1], v=[False])
@case("GET_ROWS", type=QUANTIZED, n=[256, 768], m=[5], r=[4], be1=[1, 7], be2=[1], v=[False])
@case("GET_ROWS", type=[F32, F16], n=[65], m=[5], r=[4], be1=[3], be2=[2], v=[False, True])
@case("GET_ROWS", type=[F32, Q4_0], n=[256], m=[5], r=[0], be1=[1], be2=[1], v=[False])
@case("GET_ROWS", type=[I32], n=[33], m=[5], r=[4], be1=[1, 7], be2=[1], v=[False, True])
@case("GET_ROWS", type=[*PLAIN, I32, *QUANTIZED], n=[256], m=[5], r=[4], be1=[1, 7], be2=[1],
      v=[True], half=[1])
@case("GET_ROWS", type=[F32, Q4_0], n=[256], m=[8], r=[2], be1=[3], be2=[2], v=[False],
      half=[0, 1, 2])
@case("GET_ROWS", type=[F32, Q4_0], n=[76800], m=[3], r=[4], be1=[1], be2=[2], v=[False])
@case("GET_ROWS", type=[F32], n=[4], m=[80000], r=[70000], be1=[2], be2=[1], v=[False])
@case("GET_ROWS", type=[F32], n=[4], m=[3], r=[2], be1=[700], be2=[100], v=[False])
@case("GET_ROWS", type=[Q4_0], n=[32], m=[3], r=[2], be1=[300], be2=[30], v=[False])
@case("GET_ROWS", perf=True, type=[F32, Q4_K], n=[4096], m=[32000], r=[512], be1=[1], be2=[1],
      v=[False])
def get_rows(
    new: Leaves, type: GGMLType, n: int, m: int, r: int, be1: int, be2: int, v: bool,
    half: int | None = None,
) -> Tensor:
    """Build GET_ROWS; v: ids of a longer list; half: rows of half of a larger tensor."""
    init = integers(-100, 100) if type is I32 else None
    ids = new((2 * r if v else r, be1, be2), I32, integers(0, m))
    if v:
        ids = ops.view_3d(ids, r, be1, be2, ids.nb[1], ids.nb[2], 0)
    ne = (n, m, be1, be2)
    a = new(ne, type, init) if half is None else new.second_half(ne, half, type, init)
    return ops.get_rows(a, ids)


def row_numbers(n_rows: int) -> Init:
    """Return an initializer of distinct rows per line: the winner of two writes to a row is
    undefined."""

    def init(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        order = np.broadcast_to(np.arange(n_rows), (*shape[:-1], n_rows))
        return rng.permuted(order, axis=-1)[..., : shape[-1]]

    return init


def _set_rows_bound(type: GGMLType, ne: Shape, nr23: Shape, **_: object) -> float:
    return quantization_bound(type, ne[0] * ne[1] * ne[2] * nr23[0] * ne[3] * nr23[1])


@case("SET_ROWS", type=[F32, F16, BY_NAME["bf16"]], type_idx=[I64],
      ne=[(1, 8, 1, 3), (33, 5, 3, 2)], nr23=[(1, 1), (2, 3)], r=[1, 4], v=[False])
@case("SET_ROWS", max_nmse=_set_rows_bound, type=STORED, type_idx=[I64],
      ne=[(256, 11, 2, 3), (32, 8, 1, 1)], nr23=[(2, 1)], r=[1, 7], v=[False])
@case("SET_ROWS", max_nmse=_set_rows_bound, type=STORED, type_idx=[I32], ne=[(64, 8, 1, 3)],
      nr23=[(2, 1)], r=[5], v=[False, True])
@case("SET_ROWS", type=[F32, F16], type_idx=[I32], ne=[(65, 8, 1, 3)], nr23=[(1, 1)], r=[5],
      v=[False, True])
@case("SET_ROWS", type=[F16], type_idx=[I64], ne=[(65, 8, 1, 1)], nr23=[(1, 1)], r=[0], v=[False])
@case("SET_ROWS", type=[F16], type_idx=[I64], ne=[(1, 256, 1, 1)], nr23=[(1, 1)], r=[200],
      v=[False])
@case("SET_ROWS", type=PLAIN, type_idx=[I64], ne=[(256, 11, 1, 7), (31, 3, 7, 1), (33, 5, 1, 7)],
      nr23=[(2, 3)], r=[2], v=[False, True], type_src=[F32, F16])
@case("SET_ROWS", type=[F32, F16], type_idx=[I32, I64], ne=[(1, 8, 1, 3)], nr23=[(1, 1)], r=[2],
      v=[False, True], type_src=[F16])
@case("SET_ROWS", max_nmse=_set_rows_bound, type=WRITABLE, type_idx=[I64, I32],
      ne=[(256, 11, 1, 3), (768, 3, 2, 1)], nr23=[(2, 3)], r=[3], v=[False, True],
      type_src=[F32, F16])
@case("SET_ROWS", max_nmse=_set_rows_bound, type=STORED, type_idx=[I64], ne=[(96, 3, 7, 1)],
      nr23=[(2, 3)], r=[2], v=[False], half=[0, 1, 2])
@case("SET_ROWS", type=[F32, F16], type_idx=[I64], ne=[(33, 5, 3, 1)], nr23=[(2, 1)], r=[2],
      v=[False], half=[0, 1, 2])
@case("SET_ROWS", perf=True, type=[F16, Q8_0], type_idx=[I64], ne=[(1024, 4096, 1, 1)],
      nr23=[(1, 1)], r=[1, 512], v=[False])
def set_rows(
    new: Leaves, type: GGMLType, type_idx: GGMLType, ne: Shape, nr23: Shape, r: int, v: bool,
    type_src: GGMLType = F32, half: int | None = None,
) -> Tensor:
    """Build SET_ROWS; v: on a window, with ids of a longer list; half: on half of a tensor."""
    n0, n_rows, n2, n3 = ne[0], ne[1], ne[2] * nr23[0], ne[3] * nr23[1]
    shape = (n0, r, n2, n3)
    if half is not None:
        src = new.second_half(shape, half)
    else:
        src = (new.part if v else new)(shape, type_src)
    idx = new((n_rows if v else r, ne[2], ne[3]), type_idx, row_numbers(n_rows))
    if v:
        idx = ops.view_3d(idx, r, ne[2], ne[3], idx.nb[1], idx.nb[2], 0)
    return ops.set_rows(new((n0, n_rows, n2, n3), type), src, idx)


crashes_ggml("GET_ROWS", "calls a missing function to decode this type",
             type=PARTNERS[:1])
differs_from_ggml("SET_ROWS", "rounds halves to the even level with vectors, else away from zero",
                  type=[Q8_0], type_src=[F16])
differs_from_ggml("GET_ROWS", "assumes contiguous row numbers", gaps=[1])


draws("GET_ROWS", 1, lambda t: integers(0, t.src[0].ne[1]))
draws("SET_ROWS", 1, lambda t: row_numbers(t.ne[1]))
